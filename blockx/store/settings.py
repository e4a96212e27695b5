"""Where a worker's data is, for everything that opens its stores."""

from __future__ import annotations

from attrs import field, frozen

from blockx.errors import ConfigError


@frozen(kw_only=True)
class StoreSettings:
    """The places of tables and bundles; relative ones are below the working directory."""

    database: str = field(default="sqlite:///blockx.db", metadata={"env": "BLOCKX_DATABASE"})
    """URL of the database that holds the tables."""
    bundles: str = field(default="blockx-bundles", metadata={"env": "BLOCKX_BUNDLES"})
    """URL or directory of the bundle store."""

    def __attrs_post_init__(self) -> None:
        kind, separator, _ = self.database.partition("://")
        if not separator:
            raise ConfigError("database is no URL; write sqlite:///relative or sqlite:////absolute/path")
        if kind != "sqlite":
            raise ConfigError(
                f"database is of a kind, {kind}://, that this version does not support; use sqlite:///PATH"
            )
        kind, separator, _ = self.bundles.partition("://")
        if separator and kind != "file":
            raise ConfigError(
                f"bundles is of a kind, {kind}://, that this version does not support; use file:///DIR or a path"
            )
