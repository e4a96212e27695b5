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
    _reported: dict[TaskId, tuple[PluginResult, ...]] = field(factory=dict, init=False)
    _kept: dict[TaskId, Kept] = field(factory=dict, init=False)
    _spooled: dict[TaskId, list[int]] = field(factory=dict, init=False)
    _used_bytes: int = field(default=0, init=False)

    @property
    def used_bytes(self) -> int:
        """What the bodies in files take."""
        return self._used_bytes

    async def put(self, task_id: TaskId, results: tuple[PluginResult, ...]) -> None:
        """Take what a task's writer reports, before the task converges; large bodies go to disk."""
        sizes = [len(plugin.result) for plugin in results]
        if sum(sizes) <= self.inline_bytes:
            self._reported[task_id] = results
            return
        self._reported[task_id] = tuple(evolve(plugin, result=b"") for plugin in results)
        self._spooled[task_id] = sizes
        self._use(sum(sizes))
        await trio.to_thread.run_sync(self._write_files, task_id, results)
        if task_id not in self._spooled:  # the task has ended otherwise meanwhile
            self._unlink(task_id, len(sizes))

    def take(self, task_id: TaskId) -> tuple[PluginResult, ...]:
        """What the task's writer reported; nothing if it did not get so far."""
        return self._reported.pop(task_id, ())

    def keep(self, task_id: TaskId, result: TaskResult) -> None:
        """Remember a terminal result."""
        if not result.success:
            self._remove_files(task_id)
        sizes = self._spooled.get(task_id)
        body = sum(len(plugin.result) for plugin in result.plugin_results) if sizes is None else sum(sizes)
        self._kept[task_id] = Kept(result, body, sizes is not None)

    def get(self, task_id: TaskId) -> Kept | None:
        return self._kept.get(task_id)

    def is_last(self, task_id: TaskId, plugin_index: int) -> bool:
        """Whether this is the last of the task's plugin results."""
        kept = self._kept.get(task_id)
        return kept is not None and plugin_index == len(kept.result.plugin_results) - 1

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
        try:
            file = await trio.open_file(path, "rb")
        except FileNotFoundError:
            raise NotFound("the result was kept long enough and is gone") from None
        async with file:
            while chunk := await file.read(CHUNK_BYTES):
                await send(chunk)

    def _file(self, task_id: TaskId, index: int) -> Path:
        """Ids are the client's, so they are hashed before they name a file."""
        return self.directory / f"{hashlib.sha256(task_id.encode()).hexdigest()}-{index}.json"

    def _remove_files(self, task_id: TaskId) -> None:
        sizes = self._spooled.pop(task_id, None)
        if sizes is None:
            return
        self._unlink(task_id, len(sizes))
        self._use(-sum(sizes))

    def _write_files(self, task_id: TaskId, results: tuple[PluginResult, ...]) -> None:
        for index, plugin in enumerate(results):
            self._file(task_id, index).write_bytes(plugin.result)

    def _unlink(self, task_id: TaskId, count: int) -> None:
        for index in range(count):
            self._file(task_id, index).unlink(missing_ok=True)

    def _use(self, size_bytes: int) -> None:
        was_full = self._used_bytes >= self.spool_bytes
        self._used_bytes += size_bytes
        is_full = self._used_bytes >= self.spool_bytes
        if is_full is not was_full:
            self.on_full(is_full)
