"""Where a worker's data is, for everything that opens its stores."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class StoreSettings:
    """The places of tables and bundles; relative ones are below the working directory."""

    database: str = "sqlite:///blockx.db"
    """URL of the database that holds the tables."""
    bundles: str = "blockx-bundles"
    """URL or directory of the bundle store."""
