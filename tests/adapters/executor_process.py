"""Executors as real processes, and the worker's end of their connections in the hands of a test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from blockx.stream import MessageStream
from tests.adapters.executor_peer import Peer

ROOT = Path(__file__).parents[2]


@frozen
class Running:
    peer: Peer
    process: trio.Process
    connection: trio.SocketStream

    async def output(self) -> str:
        """What the process writes to its fd 1 and 2 until it ends."""
        assert self.process.stdout is not None
        return b"".join([bytes(part) async for part in self.process.stdout]).decode()


async def start(arguments: list[str], token: str | None = None) -> trio.Process:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    if token is not None:
        environment["BLOCKX_EXECUTOR_TOKEN"] = token
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "blockx.executor", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )


@asynccontextmanager
async def running(directory: Path, *arguments: str, token: str | None = "secret") -> AsyncIterator[Running]:
    """An executor process that has connected; whatever happens, it is gone afterwards."""
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        path = directory / "socket"
        await listener.bind(str(path))
        listener.listen()
        process = await start(["--socket", str(path), *arguments], token)
        try:
            accepted, _ = await listener.accept()
            async with trio.SocketStream(accepted) as connection, trio.open_nursery() as nursery:
                peer = Peer(MessageStream(connection))
                await nursery.start(peer.stream.run_writer)
                yield Running(peer, process, connection)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.wait()
                if process.stdout is not None:
                    await process.stdout.aclose()
