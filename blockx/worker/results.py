"""The results that a worker keeps: small ones in memory, large bodies in files of the state directory."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from attrs import define, evolve, field, frozen

from blockx.errors import NotFound
from blockx.model import PluginResult, TaskId, TaskResult

CHUNK_BYTES = 1024 * 1024


@frozen
class Kept:
    """A terminal result. `body_bytes` is the size of all plugin results; `spooled` says that they lie in files."""

    result: TaskResult
    body_bytes: int
    spooled: bool


@define
class ResultStore:
    """Bodies above `inline_bytes` in all go to files; `on_full` hears when `spool_bytes` are used up, and when not."""

    directory: Path
    inline_bytes: int
    spool_bytes: int
    on_full: Callable[[bool], object]
    _kept: dict[TaskId, Kept] = field(factory=dict, init=False)
    _spooled: dict[TaskId, list[int]] = field(factory=dict, init=False)
    _used_bytes: int = field(default=0, init=False)

    @property
    def used_bytes(self) -> int:
        """What the bodies in files take."""
        return self._used_bytes

    async def spool(self, task_id: TaskId, results: tuple[PluginResult, ...]) -> tuple[PluginResult, ...]:
        """Move large bodies to disk before the task converges; the results come back without them."""
        sizes = [len(plugin.result) for plugin in results]
        if sum(sizes) <= self.inline_bytes:
            return results
        self._spooled[task_id] = sizes  # first, so that a cancelled write leaves no file behind
        self._use(sum(sizes))
        for index, plugin in enumerate(results):
            await trio.to_thread.run_sync(self._file(task_id, index).write_bytes, plugin.result)
        return tuple(evolve(plugin, result=b"") for plugin in results)

    def keep(self, task_id: TaskId, result: TaskResult) -> None:
        """Remember a terminal result."""
        if not result.success:
            self._remove_files(task_id)
        sizes = self._spooled.get(task_id)
        body = sum(len(plugin.result) for plugin in result.plugin_results) if sizes is None else sum(sizes)
        self._kept[task_id] = Kept(result, body, sizes is not None)

    def get(self, task_id: TaskId) -> Kept | None:
        return self._kept.get(task_id)

    def purge(self, task_id: TaskId) -> None:
        self._kept.pop(task_id, None)
        self._remove_files(task_id)

    async def copy(self, task_id: TaskId, plugin_index: int, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the JSON of one plugin result, a chunk at a time. Raises NotFound for an unknown task or index."""
        kept = self._kept.get(task_id)
        if kept is None or not 0 <= plugin_index < len(kept.result.plugin_results):
            raise NotFound(f"task {task_id!r} has no plugin result {plugin_index} here, or it is no longer kept")
        if kept.spooled:
            await self._copy_file(self._file(task_id, plugin_index), send)
            return
        body = kept.result.plugin_results[plugin_index].result
        for start in range(0, len(body), CHUNK_BYTES):
            await send(body[start : start + CHUNK_BYTES])

    async def _copy_file(self, path: Path, send: Callable[[bytes], Awaitable[None]]) -> None:
        async with await trio.open_file(path, "rb") as file:
            while chunk := await file.read(CHUNK_BYTES):
                await send(chunk)

    def _file(self, task_id: TaskId, index: int) -> Path:
        """Ids are the client's, so they are hashed before they name a file."""
        return self.directory / f"{hashlib.sha256(task_id.encode()).hexdigest()}-{index}.json"

    def _remove_files(self, task_id: TaskId) -> None:
        sizes = self._spooled.pop(task_id, None)
        if sizes is None:
            return
        for index in range(len(sizes)):
            self._file(task_id, index).unlink(missing_ok=True)
        self._use(-sum(sizes))

    def _use(self, size_bytes: int) -> None:
        was_full = self._used_bytes >= self.spool_bytes
        self._used_bytes += size_bytes
        is_full = self._used_bytes >= self.spool_bytes
        if is_full is not was_full:
            self.on_full(is_full)
