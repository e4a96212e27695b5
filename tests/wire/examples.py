"""One message of each kind, with every field different from its neighbour's."""

from __future__ import annotations

from blockx.wire import messages as m

EXAMPLES: list[m.Message] = [
    m.Hello(1, 4_242, "3.11.7", "token", 5_120),
    m.Welcome(1, "127.0.0.1:7071", {"call_budget_us": 5_000_000, "heartbeat_ms": 1_000}, "/srv/code", "ab" * 32),
    m.Ready(["hello_world", "décode"]),
    m.LoadFailed("ModuleNotFoundError: no module named 'foo'"),
    m.Heartbeat(3, 4, 40_000_000, 1_500),
    m.OpenTask(7, "task-7", 29_000, 0),
    m.CloseTask(7),
    m.ExecuteCalls(7, "hello_world", None, 5_000_000, [7 << 20, 7 << 20 | 1], [1, 2], [b"\x92\x90\x80", b""]),
    m.ExecuteCalls(7, "hello_world", b"\x95", 5_000_000, [], [], []),
    m.CallsCompleted([1, 2], [1, 1], [10, 20], [b"\xc0", b"\x01"]),
    m.CallFailed(1, 2, ["EXCEPTION", "ValueError", "no", "Traceback"], True, 99),
    m.CallsWaiting([1], [1], [5], [3], [b"\x91\x01"]),
    m.ResumeCalls([1, 2], [5, 6], [10, 20], [b"\xc0", None], [None, ["ReadError", "lost", True]]),
    m.CancelCall(1, 2),
    m.CallLog(1, "info", "hello"),
    m.Shutdown(5_000),
    m.Ping(2**40),
    m.Pong(0),
]
