"""What a peer that does not read may make a server hold, and what one that only asks nonsense may make it write."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import trio
import trio.testing
from h2.settings import SettingCodes
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from blockx.proto import worker_pb2 as pb
from blockx.rpc import AccessLog, Limits, RpcServer, ServerCall
from blockx.rpc.interceptors import LINES_LOGGED
from blockx.rpc.status import Code, Status
from tests.adapters.rpc_peers import framed, worker_service

ANSWER_BYTES = 1_000_000


class DeafClient:
    """Asks and asks, and lets nothing be sent to it until its window is opened."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
        self._sending = trio.Lock()
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})

    async def ask(self, method: str = "GetTaskResult", service: str = "blockx.worker.v1.WorkerService") -> None:
        stream_id = self._h2.get_next_available_stream_id()
        names = {":method": "POST", ":scheme": "http", ":path": f"/{service}/{method}", ":authority": "x"}
        self._h2.send_headers(stream_id, [*names.items(), ("te", "trailers"), ("content-type", "application/grpc")])
        self._h2.send_data(stream_id, framed(b""), end_stream=True)
        await self.flush()

    async def open_windows(self) -> None:
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        self._h2.increment_flow_control_window(2**30)
        await self.flush()

    async def flush(self) -> None:
        async with self._sending:
            await self._stream.send_all(self._h2.data_to_send())

    async def read(self) -> None:
        while data := await self._stream.receive_some():
            self._h2.receive_data(bytes(data))
            await self.flush()


async def test_calls_whose_answers_nobody_reads_are_not_begun_beyond_a_bound(autojump_clock: MockClock) -> None:
    begun: list[int] = []

    async def large(request: Any, call: ServerCall) -> pb.GetTaskResultResponse:
        begun.append(1)
        plugin = pb.PluginResult(result=bytes(ANSWER_BYTES))
        execute_result = pb.ExecuteResult(plugin_results=[plugin])
        return pb.GetTaskResultResponse(result=pb.TaskResult(execute_result=execute_result))

    server = RpcServer([worker_service(GetTaskResult=large)], limits=Limits(max_unsent_bytes=3 * ANSWER_BYTES))
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_connection, far, "deaf:1")
        client = DeafClient(near)
        await client.flush()
        nursery.start_soon(client.read)
        for _ in range(50):
            await client.ask()
        await wait_all_tasks_blocked()
        assert 3 <= len(begun) <= 4
        await client.open_windows()
        await wait_all_tasks_blocked()
        assert len(begun) == 50
        nursery.cancel_scope.cancel()


async def test_calls_of_methods_that_do_not_exist_are_logged_a_few_times_and_end_the_connection(
    autojump_clock: MockClock,
) -> None:
    server = RpcServer([worker_service()], limits=Limits(max_dropped_calls=100))
    near, far = trio.testing.memory_stream_pair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve_connection, far, "odd:1")
            client = DeafClient(near)
            await client.flush()
            for _ in range(300):
                await client.ask("Nothing", "no.Such")
            await client.read()  # to the end that the server makes of it
            nursery.cancel_scope.cancel()
    assert 0 < len([log for log in logs if log["event"] == "request refused"]) <= 20
    assert [log["reason"] for log in logs if log["event"] == "connection ended"] == [
        "more than 100 calls came to nothing"
    ]


async def test_of_very_many_calls_that_go_wrong_some_are_logged_and_the_others_counted(mock_clock: MockClock) -> None:
    log, call = AccessLog(), ServerCall(method="s.m", peer="p:1")

    async def refused() -> Status:
        await trio.lowlevel.checkpoint()
        return Status(Code.CANCELLED, "")

    with capture_logs() as logs:
        for _ in range(LINES_LOGGED + 50):
            await log(call, refused)
        assert len(logs) == LINES_LOGGED
        mock_clock.jump(1)
        await log(call, refused)
    assert logs[-1]["calls_left_out"] == "50"
