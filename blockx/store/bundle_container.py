"""How a bundle's JSON is compressed: one gzip member, read back with a bound."""

from __future__ import annotations

import gzip
import zlib

from blockx.store.bundle_format import BadBundle

__all__ = ["GZIP_MAGIC", "ZSTD_MAGIC", "pack", "unpack"]

_GZIP_LEVEL = 3
"""Measured on main net blocks: less than half the time of level 6 for a twelfth more bytes."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def pack(data: bytes) -> bytes:
    """Compress; equal bytes give equal objects."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def unpack(packed: bytes, max_bytes: int) -> bytes:
    """Decompress. Raises BadBundle for what is no whole gzip member, or holds more than `max_bytes`."""
    if packed.startswith(ZSTD_MAGIC):
        raise BadBundle("it is compressed with zstd, which this version does not read")
    if not packed.startswith(GZIP_MAGIC):
        raise BadBundle("it is not compressed with gzip")
    stream = zlib.decompressobj(wbits=31)
    try:
        data = stream.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise BadBundle(f"its gzip data is damaged ({error})") from None
    if len(data) > max_bytes:
        raise BadBundle(f"it has more than {max_bytes} bytes of JSON")
    if not stream.eof:
        raise BadBundle("its gzip data is cut off")
    if stream.unused_data:
        raise BadBundle(f"{len(stream.unused_data)} bytes follow its gzip data")
    return data
