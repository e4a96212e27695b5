"""Our gRPC server in figures, beside plain purerpc and grpc.aio. `python -m benchmarks.rpc [--json FILE]`.

Each server is a process of its own; the load comes from this process, the same bytes for each. The servers take turns
within each round, and a figure is the median of its rounds. CPU is that of the server's process alone: it hardly moves
with what else the machine does, while calls per second and latency do.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
from google.protobuf.wrappers_pb2 import BytesValue, UInt32Value
from rich.console import Console
from rich.table import Table

from benchmarks.rpc_load import Load
from benchmarks.rpc_servers import NAME, PEERS, SERVERS, STREAMED

REQUEST = BytesValue(value=b"r" * 197).SerializeToString()  # 200 bytes
ROUNDS = 7
CALLS = 2_000
IN_FLIGHT = 32
LATENCY_CALLS = 300
STREAMED_MESSAGES = 20_000
IDLE_STREAMS = 1_000
CONNECTIONS = 500
PREFIX_BYTES = 5

#: By server, by what was measured.
Figures = dict[str, dict[str, float]]


@attrs.frozen
class Server:
    """A server that runs, in a process of its own."""

    address: str
    pid: int

    def load(self, method: str, request: bytes) -> Load:
        return Load(self.address, f"/{NAME}/{method}", request)

    def cpu_s(self) -> float:
        """Seconds of CPU that the process has used, all threads; the clock is that of clock_getcpuclockid(3)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_kib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1024


@contextlib.contextmanager
def running(name: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.rpc_servers", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(process.stdout.readline().strip(), process.pid)
        finally:
            process.kill()


def installed() -> list[str]:
    return [name for name in SERVERS if name not in PEERS or importlib.util.find_spec(PEERS[name])]


# -- what is measured of each server in each round


def busy(server: Server, load: Load) -> dict[str, float]:
    """Unary calls, 32 open at any time."""
    before, began, cpu = load.data_bytes, time.perf_counter(), server.cpu_s()
    load.run(CALLS, IN_FLIGHT)
    cpu, took = server.cpu_s() - cpu, time.perf_counter() - began
    check(load.data_bytes - before, CALLS * (len(REQUEST) + PREFIX_BYTES))
    return {"cpu_us_per_call": cpu / CALLS * 1e6, "calls_per_s": CALLS / took}


def one_by_one(server: Server, load: Load) -> dict[str, float]:
    """Unary calls, one at a time."""
    cpu, times = server.cpu_s(), []
    for _ in range(LATENCY_CALLS):
        began = time.perf_counter()
        load.run(1, 1)
        times.append(time.perf_counter() - began)
    cpu = server.cpu_s() - cpu
    return {"latency_us": statistics.median(times) * 1e6, "cpu_us_per_lone_call": cpu / LATENCY_CALLS * 1e6}


def streaming(server: Server, load: Load) -> dict[str, float]:
    """Messages of 100 bytes on one stream."""
    before, began, cpu = load.data_bytes, time.perf_counter(), server.cpu_s()
    load.run(1, 1)
    cpu, took = server.cpu_s() - cpu, time.perf_counter() - began
    check(load.data_bytes - before, STREAMED_MESSAGES * (STREAMED.ByteSize() + PREFIX_BYTES))
    return {"streamed_per_s": STREAMED_MESSAGES / took, "cpu_us_per_streamed": cpu / STREAMED_MESSAGES * 1e6}


def check(data_bytes: int, expected: int) -> None:
    if data_bytes != expected:
        raise RuntimeError(f"the answers have {data_bytes} bytes, not {expected}: some calls failed")


Part = tuple[Callable[[Server, Load], dict[str, float]], str, bytes]
PARTS: Sequence[Part] = (
    (busy, "Echo", REQUEST),
    (one_by_one, "Echo", REQUEST),
    (streaming, "Count", UInt32Value(value=STREAMED_MESSAGES).SerializeToString()),
)


def measure_speed(servers: dict[str, Server], rounds: int) -> Figures:
    """The median of each figure; a first round, to warm up, does not count."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in servers}
    gc.disable()
    for part, method, request in PARTS:
        loads = {name: server.load(method, request) for name, server in servers.items()}
        for number in range(rounds + 1):
            for name, server in servers.items():
                for what, figure in part(server, loads[name]).items():
                    if number > 0:
                        samples[name].setdefault(what, []).append(figure)
        for load in loads.values():
            load.close()
    gc.enable()
    return {name: {what: statistics.median(each) for what, each in of.items()} for name, of in samples.items()}


# -- memory


def measure_memory(server: Server) -> dict[str, float]:
    """What idle streams and idle connections hold, and what is left when they are gone."""
    warm_up(server)
    start = server.resident_kib()
    stream_kib, streams_left = held_by(server, lambda: [idle_streams(server)], IDLE_STREAMS)
    connection_kib, connections_left = held_by(server, lambda: connections(server), CONNECTIONS)
    return {
        "kib_per_idle_stream": stream_kib,
        "kib_per_connection": connection_kib,
        "rss_after_streams": streams_left / start,
        "rss_after_connections": connections_left / start,
        "rss_start_mib": start / 1024,
    }


def held_by(server: Server, hold: Callable[[], list[Load]], count: int) -> tuple[float, float]:
    """KiB for each of the `count` things that `hold` opens, and KiB of the process when they are closed again."""
    before = server.resident_kib()
    loads = hold()
    held = server.resident_kib()
    for load in loads:
        load.close()
    warm_up(server)
    return (held - before) / count, server.resident_kib()


def warm_up(server: Server) -> None:
    """Some calls, the last of them once everything that came before has been dealt with."""
    load = server.load("Echo", REQUEST)
    load.run(CALLS, IN_FLIGHT)
    time.sleep(1.5)  # for connections that were closed: nobody tells us when a server has let go of them
    load.run(CALLS, IN_FLIGHT)
    load.close()


def idle_streams(server: Server) -> Load:
    load = server.load("Hold", REQUEST)
    load.begin(IDLE_STREAMS)
    load.settle()
    time.sleep(0.5)  # the server has the requests; its tasks may still have to start
    return load


def connections(server: Server) -> list[Load]:
    loads = [server.load("Echo", REQUEST) for _ in range(CONNECTIONS)]
    for load in loads:
        load.run(1, 1)
    return loads


# -- the report

LABELS = {
    "cpu_us_per_call": f"unary, {IN_FLIGHT} in flight: server CPU a call, µs",
    "calls_per_s": f"unary, {IN_FLIGHT} in flight: calls/s",
    "latency_us": "unary, one at a time: latency, median, µs",
    "cpu_us_per_lone_call": "unary, one at a time: server CPU a call, µs",
    "streamed_per_s": "server streaming, 100 bytes: messages/s",
    "cpu_us_per_streamed": "server streaming, 100 bytes: server CPU a message, µs",
    "kib_per_idle_stream": f"{IDLE_STREAMS} idle streams, one connection: KiB each",
    "kib_per_connection": f"{CONNECTIONS} connections: KiB each",
    "rss_after_streams": "RSS when the streams are gone, of that before",
    "rss_after_connections": "RSS when the connections are gone too, of that before",
    "rss_start_mib": "RSS before, MiB",
}


def measure(rounds: int) -> Figures:
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(running(name)) for name in installed()}
        figures = measure_speed(servers, rounds)
    for name, of in figures.items():
        with running(name) as server:
            of.update(measure_memory(server))
    return figures


def table_of(figures: Figures) -> Table:
    table = Table("what", *figures, title="gRPC servers: 200-byte echo, one connection, the same load for each")
    for what, label in LABELS.items():
        table.add_row(label, *(f"{of[what]:.2f}" if of[what] < 100 else f"{of[what]:.0f}" for of in figures.values()))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the gRPC server beside its peers.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each figure (default {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    figures = measure(options.rounds)
    console = Console()
    console.print(table_of(figures))
    for name in SERVERS.keys() - figures.keys():
        console.print(f"{name}: not installed, left out")
    if "purerpc" in figures:
        ratio = figures["blockx"]["cpu_us_per_call"] / figures["purerpc"]["cpu_us_per_call"]
        console.print(f"server CPU a call, blockx / purerpc: {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
