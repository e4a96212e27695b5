"""Certificates for tests: authorities that exist in a directory only, and what they sign."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from attrs import frozen


@frozen
class Certificate:
    """Paths of PEM files."""

    cert: str
    key: str


class Authority:
    """Signs certificates; `ca` is the path of its own, as PEM."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._ca = trustme.CA()
        self.ca = self._write("ca", self._ca.cert_pem)

    def issue(
        self, *hosts: str, common_name: str | None = None, not_after: datetime.datetime | None = None
    ) -> Certificate:
        """A certificate for these names; by default for the loopback address."""
        issued = self._ca.issue_cert(*(hosts or ("127.0.0.1",)), common_name=common_name, not_after=not_after)
        name = common_name or "-".join(hosts or ("loopback",))
        return Certificate(
            self._write(f"{name}-cert", *issued.cert_chain_pems), self._write(f"{name}-key", issued.private_key_pem)
        )

    def _write(self, name: str, *parts: trustme.Blob) -> str:
        path = self._directory / f"{self._name}-{name}.pem"
        path.write_bytes(b"".join(part.bytes() for part in parts))
        return str(path)
