"""Bundles in a local directory: one gzip JSON object a block, found by chain and block id or by height.

Keys: `{chain_id}/{block_id}` holds the bundle, and an empty object under `heights/` names each (height, id). Imports
may run side by side: a bundle is never rewritten, and a name only by itself. All methods are synchronous and may be
called from several threads at once.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import obstore
from attrs import frozen
from obstore.store import LocalStore

from blockx.errors import ConfigError, ReadError, Unavailable
from blockx.model import BlockContext
from blockx.store.bundle_container import pack, unpack
from blockx.store.bundle_format import (
    MAX_BUNDLE_BYTES,
    SOURCES,
    BadBundle,
    Outer,
    block_id_key,
    bounded,
    check_bundle,
    context_of,
    rows_of,
    same_content,
    split,
    whole,
)
from blockx.store.bundle_index import HeightIndex

__all__ = [
    "MAX_BUNDLE_BYTES",
    "SOURCES",
    "BadBundle",
    "BundleEntry",
    "BundleStore",
]
_STORAGE_ERRORS = (OSError, obstore.exceptions.BaseError)


@frozen
class BundleEntry:
    """One stored bundle; `size_bytes` as it is stored, compressed."""

    chain_id: int
    height: int
    block_id: str
    size_bytes: int


@frozen
class BundleStore:
    """The bundles below one directory; `open` makes it."""

    url: str
    _store: LocalStore

    @property
    def _heights(self) -> HeightIndex:
        return HeightIndex(self._store)

    @classmethod
    def open(cls, url: str, *, must_exist: bool = False) -> BundleStore:
        """Open `file:///absolute/directory` or a plain path; the directory is made if it is not there.

        Raises ConfigError for a URL of another kind, and for a missing directory that `must_exist`; Unavailable if the
        directory cannot be used.
        """
        path = _directory(url)
        if must_exist and not path.exists():
            raise ConfigError(
                f"there is no bundle directory {path}; `blockx bundles import` makes one, --bundles names another"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            return cls(path.as_uri(), LocalStore(path))
        except _STORAGE_ERRORS as error:
            raise Unavailable(f"bundle directory {path} cannot be used: {_reason(error)}") from None

    def put(self, bundle: Mapping[str, Any] | bytes) -> bool:
        """Keep one bundle, as a dict or as JSON bytes; False if it is there already.

        Raises BadBundle if it is none, or if this block is stored with other content; Unavailable if it could not be
        written. Then nothing of it is to be seen.
        """
        data = bundle if isinstance(bundle, bytes) else _as_json(bundle)
        if len(data) > MAX_BUNDLE_BYTES:
            raise BadBundle(f"it has {len(data)} bytes of JSON, at most {MAX_BUNDLE_BYTES} are allowed")
        block = check_bundle(data)
        try:
            is_new = self._create(_key(block.chain_id, block.id), pack(data))
            if not is_new:
                self._check_same(block, data)
            # Also for a known bundle: an import may have been cut off between the two.
            self._heights.add(block)
        except _STORAGE_ERRORS as error:
            raise Unavailable(f"{_name(block.chain_id, block.id)} could not be stored: {_reason(error)}") from None
        return is_new

    def _create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, key, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def _check_same(self, block: BlockContext, data: bytes) -> None:
        try:
            is_same = same_content(self.read(block.chain_id, block.id), data)
        except ReadError as error:
            if error.retryable:
                raise Unavailable(f"what is stored of block {block.id} could not be compared: {error}") from None
            raise BadBundle(f"what is stored of it cannot be compared, remove it to import it again: {error}") from None
        if not is_same:
            raise BadBundle(f"block {block.id} of chain {block.chain_id} is stored with other content")

    def read(self, chain_id: int, block_id: str) -> bytes:
        """One bundle's JSON.

        Raises ReadError naming chain and block: retryable if it is missing or storage fails, not retryable if it is
        broken, larger than MAX_BUNDLE_BYTES, or about another block than its key.
        """
        return self._read(chain_id, block_id)[0]

    def part(self, chain_id: int, block_id: str, source: str) -> tuple[BlockContext, list[dict[str, Any]]]:
        """One block's context and one of its lists (a word of SOURCES; `block`: the header alone), quantities as int.

        What is not wanted is not parsed. Raises ReadError like `read`, and for an unknown source or one that this
        bundle was stored without.
        """
        _, outer, context = self._read(chain_id, block_id)
        try:
            return context, rows_of(outer, source)
        except BadBundle as error:
            raise ReadError(f"{_name(chain_id, block_id)}: {error}") from None

    def bundle(self, chain_id: int, block: str | int) -> dict[str, Any]:
        """Everything of one block, by id or by height, quantities as int.

        Raises ReadError like `read`; several blocks of one height are an error that names them.
        """
        block_id = self._id_at(chain_id, block) if isinstance(block, int) else block
        _, outer, _ = self._read(chain_id, block_id)
        try:
            return whole(outer)
        except BadBundle as error:
            raise ReadError(f"{_name(chain_id, block_id)}: {error}") from None

    def ids_at(self, chain_id: int, heights: range) -> dict[int, list[str]]:
        """The ids of the stored blocks at these heights, each list sorted; a height without one is missing.

        Raises ReadError if the storage fails, and for a chain id that is none.
        """
        _check("chain id", chain_id)
        found: dict[int, list[str]] = {}
        with _listing(f"the heights of chain {chain_id}"):
            for height, block_id in self._heights.blocks(chain_id, heights):
                found.setdefault(height, []).append(block_id)
        return found

    def list(self, chain_id: int | None = None) -> Iterator[BundleEntry]:
        """All stored bundles, or those of one chain, by chain and height. Raises ReadError if the storage fails."""
        with _listing("the bundles"):
            for chain in self._heights.chains() if chain_id is None else [chain_id]:
                for height, block_id in self._heights.blocks(chain):
                    size_bytes = self._size_bytes(_key(chain, block_id))
                    if size_bytes is not None:
                        yield BundleEntry(chain, height, block_id, size_bytes)

    def _size_bytes(self, key: str) -> int | None:
        """None: somebody removed the bundle and left its entry in the index."""
        try:
            return obstore.head(self._store, key)["size"]
        except FileNotFoundError:
            return None

    def _read(self, chain_id: int, block_id: str) -> tuple[bytes, Outer, BlockContext]:
        _check("chain id", chain_id)
        try:
            wanted = block_id_key(block_id)
        except BadBundle as error:
            raise ReadError(f"no bundle can be read on chain {chain_id}: {error}") from None
        name = _name(chain_id, wanted)
        try:
            data = unpack(self._get(_key(chain_id, wanted)), MAX_BUNDLE_BYTES)
            outer = split(data)
            context = context_of(outer)
        except FileNotFoundError:
            raise _missing(f"block {wanted}", chain_id) from None
        except BadBundle as error:
            raise ReadError(f"{name} is broken: {error}") from None
        except _STORAGE_ERRORS as error:
            raise ReadError(f"{name} could not be read: {_reason(error)}", retryable=True) from None
        if (context.chain_id, context.id) != (chain_id, wanted):
            raise ReadError(f"{name} is broken: it holds block {context.id} of chain {context.chain_id}")
        return data, outer, context

    def _get(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def _id_at(self, chain_id: int, height: int) -> str:
        _check("height", height)
        ids = self.ids_at(chain_id, range(height, height + 1)).get(height, [])
        if not ids:
            raise _missing(f"height {height}", chain_id)
        if len(ids) > 1:
            where = f"of height {height} on chain {chain_id}"
            raise ReadError(f"there are several bundles {where}; name one by its id: {', '.join(ids)}")
        return ids[0]


def _check(what: str, number: int) -> None:
    try:
        bounded(what, number)
    except BadBundle as error:
        raise ReadError(f"no bundle can be read: {error}") from None


def _missing(what: str, chain_id: int) -> ReadError:
    return ReadError(
        f"there is no bundle of {what} on chain {chain_id}; import it first, or try again later", retryable=True
    )


def _directory(url: str) -> Path:
    parsed = urllib.parse.urlsplit(url)
    if "://" not in url:
        if not url:
            raise ConfigError("the bundle store has no path; name a directory")
        return Path(url).absolute()
    if parsed.scheme != "file":
        raise ConfigError(
            f"bundle store {parsed.scheme}:// is not supported by this version; use file:///DIR or a path"
        )
    if parsed.netloc or not parsed.path or parsed.query or parsed.fragment:
        raise ConfigError(f"{url!r} must be file:///absolute/directory, or a plain path")
    return Path(urllib.parse.unquote(parsed.path))


def _as_json(bundle: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(bundle)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadBundle(f"it cannot be written as JSON: {error}") from None


def _key(chain_id: int, block_id: str) -> str:
    return f"{chain_id}/{block_id}"


def _name(chain_id: int, block_id: str) -> str:
    return f"the bundle of block {block_id} on chain {chain_id}"


def _reason(error: BaseException) -> str:
    """An obstore error's own sentence; a dump of its source follows it."""
    return str(error).split("\n", 1)[0]


@contextmanager
def _listing(what: str) -> Iterator[None]:
    try:
        yield
    except _STORAGE_ERRORS as error:
        raise ReadError(f"{what} could not be listed: {_reason(error)}", retryable=True) from None
