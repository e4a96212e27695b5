"""One SQLite file as an SQLAlchemy engine: opening it, and telling apart what may be tried again."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from blockx.errors import ConfigError, Unavailable

__all__ = [
    "BUSY_TIMEOUT_MS",
    "MAX_WAL_BYTES",
    "database_path",
    "file_identity",
    "is_missing_table",
    "is_retryable",
    "open_engine",
    "wal_bytes",
]

BUSY_TIMEOUT_MS = 5_000
"""How long a statement waits for another process's lock before it fails, retryable."""

MAX_WAL_BYTES = 8 * 1024 * 1024
"""Above this the writer empties the write-ahead log: steady readers keep SQLite from doing so by itself."""

_KEPT_CONNECTIONS = 4

_RETRYABLE_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    }
)


def database_path(url: str) -> Path:
    """The file that `sqlite:////abs/path` or `sqlite:///rel` names. Raises ConfigError for every other URL."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ConfigError(f"{url!r} is no database URL; write sqlite:////absolute/path or sqlite:///relative") from None
    if parsed.drivername != "sqlite":
        raise ConfigError(f"database scheme {parsed.drivername!r} is not supported by this version; use sqlite:///PATH")
    if parsed.host or parsed.query or parsed.username:
        raise ConfigError("a sqlite URL has a path only: sqlite:////absolute/path or sqlite:///relative")
    if not parsed.database or parsed.database == ":memory:":
        raise ConfigError("an in-memory database cannot be shared between threads; name a file: sqlite:///PATH")
    return Path(parsed.database).absolute()


def open_engine(path: Path) -> sa.Engine:
    """An engine whose connections autocommit, wait for locks, and share the file in WAL mode.

    Raises Unavailable if the file cannot be opened, ConfigError if it is no SQLite database.
    """
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        isolation_level="AUTOCOMMIT",
        poolclass=QueuePool,
        pool_size=_KEPT_CONNECTIONS,
        max_overflow=-1,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
    )
    try:
        with engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
    except sa.exc.DBAPIError as error:
        engine.dispose()
        _refuse(path, error)
    if mode != "wal":
        engine.dispose()
        raise Unavailable(
            f"database {path} cannot use a write-ahead log (mode {mode!r}); put it on a local file system"
        )
    return engine


def _refuse(path: Path, error: sa.exc.DBAPIError) -> NoReturn:
    if _code(error) == sqlite3.SQLITE_NOTADB:
        raise ConfigError(f"{path} is no SQLite database; name another file") from None
    if not path.parent.is_dir():
        raise Unavailable(f"database {path} cannot be opened: there is no directory {path.parent}") from None
    raise Unavailable(f"database {path} cannot be opened: {error.orig}") from None


def _code(error: sa.exc.DBAPIError) -> int:
    """SQLite's primary result code, without the extension in its upper bits."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


def is_retryable(error: sa.exc.DBAPIError) -> bool:
    """Whether the same statement may succeed later: locked, interrupted, or trouble with the file."""
    return _code(error) in _RETRYABLE_CODES


def is_missing_table(error: sa.exc.DBAPIError) -> bool:
    """Whether a table is not in the database (SQLite has no code of its own for it)."""
    return _code(error) == sqlite3.SQLITE_ERROR and "no such table" in str(error.orig)


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at this path from another one that takes its place; None: nobody can tell."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def wal_bytes(path: Path) -> int:
    """The size of the write-ahead log; 0 while there is none."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0
