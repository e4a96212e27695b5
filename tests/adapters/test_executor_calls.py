from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from blockx.errors import RetryableError
from blockx.executor.failures import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES
from blockx.model import BlockContext
from blockx.plugins import pack_block
from blockx.stream import FULL_BYTES
from blockx.wire import messages as m
from blockx.wire.values import pack_value, unpack_value
from tests.adapters.executor_peer import Peer, executor, first_id

BLOCK = BlockContext(1, "0xab", 7, "0xaa", 1_700_000_000)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A worker's end, its executor Ready and task 1 open."""
    async with executor() as connected:
        await connected.greet()
        connected.open()
        yield connected


# --------------------------------------------------------------------------------------------------------------------
# Results


async def test_calls_return_their_values_under_their_ids(peer: Peer) -> None:
    peer.execute("add", [1], [1, 2], [3], attempt=2)
    completed = await peer.hear(m.CallsCompleted)
    assert completed.ids == [first_id(1), first_id(1) + 1, first_id(1) + 2]
    assert completed.attempts == [2, 2, 2]
    assert completed.values == [pack_value(value) for value in (111, 103, 113)]
    assert all(cost >= 0 for cost in completed.cpu_us)


async def test_keyword_arguments_and_other_names_are_passed_on(peer: Peer) -> None:
    assert await peer.outcome("add", 1, b=2, c=3) == 6
    assert await peer.outcome("renamed", (1, 2**80)) == (1, 2**80)
    assert await peer.outcome("everything", 1, 2, x=3) == [[1, 2], {"x": 3}]


async def test_an_async_function_that_suspends_does_not_hold_up_others(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("nap", [10, "slow"])
    peer.execute("nap", [1, "quick"], first=1)
    peer.execute("add", [1], first=2)
    order = [value for _ in range(3) for value in (await peer.values(1)).values()]
    assert order == [111, "quick", "slow"]


async def test_a_function_sees_its_block_task_index_and_attempt(peer: Peer) -> None:
    peer.execute("about", [], first=5, attempt=3, block=pack_block(BLOCK))
    block = {"chain_id": 1, "id": "0xab", "height": 7, "parent_id": "0xaa", "timestamp": 1_700_000_000}
    assert await peer.value() == {"block": block, "task": "task-1", "index": 5, "attempt": 3}
    peer.execute("about", [])
    assert (await peer.value())["block"] is None


async def test_context_variables_do_not_leak_into_the_next_call(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("leaks_context", ["a"], ["b"])
    assert list((await peer.values(2)).values()) == ["clean", "clean"]
    peer.execute("leaks_context_later", ["a"], ["b"], ["c"])
    assert sorted((await peer.values(3)).values()) == ["cleana", "cleanb", "cleanc"]
    assert await peer.outcome("leaks_context", "x") == "clean"


async def test_thousands_of_calls_may_be_suspended_at_once(peer: Peer, autojump_clock: trio.testing.MockClock) -> None:
    for start in range(0, 2_048, 64):
        peer.execute("nap", *[[1, start + n] for n in range(64)], first=start)
    found = await peer.values(2_048)
    assert found == {first_id(1) + n: n for n in range(2_048)}
    assert await peer.outcome("add", 1) == 111


async def test_a_long_queue_does_not_keep_the_executor_from_answering(peer: Peer) -> None:
    for start in range(0, 640, 64):
        peer.execute("busy", *[[100]] * 64, first=start)
    peer.say(m.Ping(9))
    done = 0
    while not any(isinstance(message, m.Pong) for message in peer.unheard):
        done = sum(len(message.ids) for message in peer.unheard if isinstance(message, m.CallsCompleted))
        peer.unheard += await peer.stream.receive()
    assert done < 640
    await peer.values(640)


async def test_an_executor_that_is_not_read_stops_beginning_calls() -> None:
    total, size = 1_000, 100_000
    async with executor(trio.testing.lockstep_stream_pair) as peer:
        await peer.greet()
        peer.open()
        for start in range(0, total, 50):
            peer.execute("counted_bytes", *[[start + n, size] for n in range(50)], first=start)
        await trio.testing.wait_all_tasks_blocked()
        started = sys.modules["calls"].started
        begun = len(started)
        assert FULL_BYTES // size <= begun < total
        assert len(await peer.values(total)) == total
        assert started == list(range(total))


# --------------------------------------------------------------------------------------------------------------------
# Failures


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "reason"),
    [
        ("add", [], {}, "missing a required argument: 'a'; the signature is add(a: int, b: int = 10, *, c: int = 100)"),
        ("add", [1, 2, 3], {}, "too many positional arguments; the signature is add("),
        ("add", [1], {"d": 1}, "got an unexpected keyword argument 'd'; the signature is add("),
        ("renamed", [], {}, "the signature is renamed(value: Any)"),
        ("about", [1], {}, "too many positional arguments; the signature is about()"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_with_the_signature(
    peer: Peer, function: str, args: list[Any], kwargs: dict[str, Any], reason: str
) -> None:
    failed = await peer.failure(function, *args, **kwargs)
    assert failed.error[0] == "BAD_ARGUMENTS"
    assert reason in failed.error[2]
    assert not failed.retryable


async def test_an_unknown_function_is_told_with_the_nearest_name(peer: Peer) -> None:
    peer.execute("ad", [1], [2], attempt=4)
    for index in range(2):
        failed = await peer.hear(m.CallFailed)
        assert (failed.call_id, failed.attempt, failed.error[0]) == (first_id(1) + index, 4, "FUNCTION_NOT_FOUND")
        assert failed.error[2] == "there is no function 'ad' (did you mean 'add'?)"


async def test_an_exception_is_told_with_its_stack_and_without_our_frames(peer: Peer) -> None:
    failed = await peer.failure("raises", "ouch")
    code, error_type, message, stack = failed.error
    assert (code, error_type, message, failed.retryable) == ("EXCEPTION", "ValueError", "ouch", False)
    assert "KeyError: 'cause'" in stack
    assert 'calls.py"' in stack
    assert "blockx/executor" not in stack
    assert stack.endswith("ValueError: ouch\n")


async def test_texts_of_exceptions_are_bounded_and_valid(peer: Peer) -> None:
    failed = await peer.failure("raises", "é" * 100_000)
    assert len(failed.error[2].encode()) <= MAX_MESSAGE_BYTES
    assert len(failed.error[3].encode()) <= MAX_TRACEBACK_BYTES
    assert "(shortened)" in failed.error[2]
    failed = await peer.failure("raises_unprintable")
    assert failed.error[1:3] == ["Unprintable", "(its text could not be had: ValueError)"]


@pytest.mark.parametrize(
    ("retryable", "name", "text"), [(True, "RetryableError", "later"), (False, "LookupError", "never")]
)
async def test_a_group_of_one_exception_counts_as_that_one(peer: Peer, retryable: bool, name: str, text: str) -> None:
    failed = await peer.failure("raises_in_nursery", retryable)
    assert failed.error[:3] == ["EXCEPTION", name, text]
    assert failed.retryable is retryable


async def test_a_retryable_error_may_be_tried_again(peer: Peer) -> None:
    failed = await peer.failure("not_yet")
    assert failed.error[:3] == ["EXCEPTION", RetryableError.__name__, "try again"]
    assert failed.retryable


@pytest.mark.parametrize(
    ("kind", "name", "text"), [("sys.exit", "SystemExit", "sys.exit(3)"), ("^C", "KeyboardInterrupt", "this call only")]
)
async def test_leaving_the_program_ends_only_the_call(peer: Peer, kind: str, name: str, text: str) -> None:
    failed = await peer.failure("exits", kind)
    assert failed.error[:2] == ["EXCEPTION", name]
    assert text in failed.error[2]
    assert await peer.outcome("add", 1) == 111


@pytest.mark.parametrize("function", ["raises_awkward", "raises_awkward_later"])
@pytest.mark.parametrize(
    ("kind", "error_type", "text"),
    [
        ("says exit", "SaysExit", "(its text could not be had: SystemExit)"),
        ("lies", "Lies", ""),
        ("lying read", "LyingRead", "read"),
        ("sly text", "SaysSlyText", "sly"),
        ("lying group", "LyingGroup", "group (2 sub-exceptions)"),
        ("huge integer", "ValueError", "(its text could not be had: ValueError)"),
        ("generator exit", "GeneratorExit", ""),
        ("surrogate", "ValueError", "\\ud800"),
    ],
)
async def test_whatever_an_exception_says_of_itself_ends_only_its_call(
    peer: Peer, function: str, kind: str, error_type: str, text: str
) -> None:
    failed = await peer.failure(function, kind)
    assert failed.error[:3] == ["IO_ERROR" if kind == "lying read" else "EXCEPTION", error_type, text]
    assert not failed.retryable
    assert await peer.outcome("add", 1) == 111


@pytest.mark.parametrize("function", ["raises_kept_cancelled", "raises_kept_cancelled_later"])
@pytest.mark.parametrize("in_group", [False, True])
async def test_a_cancelled_of_another_call_ends_only_the_call_that_raises_it(
    peer: Peer, function: str, in_group: bool
) -> None:
    assert await peer.outcome("keeps_cancelled") is None
    failed = await peer.failure(function, in_group)
    assert failed.error[:2] == ["EXCEPTION", "BaseExceptionGroup" if in_group else "Cancelled"]
    assert in_group or "nothing of its own was cancelled" in failed.error[2]
    assert await peer.outcome("add", 1) == 111


async def test_awaiting_what_is_not_trio_fails_the_call(peer: Peer) -> None:
    failed = await peer.failure("awaits_nonsense")
    assert failed.error[:2] == ["EXCEPTION", "TypeError"]
    assert await peer.outcome("add", 1) == 111


async def test_a_value_that_cannot_be_sent_is_told_with_its_path(peer: Peer) -> None:
    failed = await peer.failure("returns_lock")
    assert failed.error[:3] == [
        "UNSERIALIZABLE",
        "UnserializableValue",
        "value[1]['lock']: a _thread.lock cannot be sent",
    ]
    assert await peer.outcome("add", 1) == 111


async def test_a_value_larger_than_a_frame_fails_its_call() -> None:
    async with executor() as peer:
        await peer.greet(max_frame_bytes=100_000)
        peer.open()
        failed = await peer.failure("returns_bytes", 40_000)
        assert failed.error[0] == "VALUE_TOO_LARGE"
        assert "40003 bytes" in failed.error[2]
        assert await peer.outcome("returns_bytes", 30_000) == bytes(30_000)


@pytest.mark.parametrize("kind", ["scope", "nursery"])
async def test_a_scope_left_open_fails_its_call_and_harms_no_other(
    peer: Peer, autojump_clock: trio.testing.MockClock, kind: str
) -> None:
    failed = await peer.failure("leaves_scope_open", kind)
    assert failed.error[:2] == ["EXCEPTION", "RuntimeError"]
    assert "left a cancel scope or nursery open" in failed.error[2]
    peer.execute("nap", *[[1, n] for n in range(10)])
    assert sorted((await peer.values(10)).values()) == list(range(10))


# --------------------------------------------------------------------------------------------------------------------
# Reads


async def test_a_read_suspends_its_call_until_the_answer(peer: Peer) -> None:
    peer.execute("row", ["a"])
    waiting, requests = await peer.asked()
    assert requests == [["table.get_many", "tokens", ["a"], None]]
    assert (waiting.ids, waiting.attempts) == ([first_id(1)], [1])
    peer.execute("row", [("b", 2)], first=1, attempt=2)
    other, requests = await peer.asked()
    assert requests == [["table.get_many", "tokens", [["b", 2]], None]]
    assert (other.ids, other.attempts) == ([first_id(1) + 1], [2])
    peer.execute("add", [1], first=2)
    assert await peer.value() == 111
    peer.answer(other, [None])
    assert await peer.values(1) == {first_id(1) + 1: None}
    peer.answer(waiting, [{"symbol": "A"}])
    assert await peer.values(1) == {first_id(1): {"symbol": "A"}}


async def test_a_call_that_suspends_again_leaves_the_queue_to_another_runner(peer: Peer) -> None:
    peer.execute("row_after_row", [["a", "b"]])
    first, _ = await peer.asked()
    peer.answer(first, [1])
    peer.execute("add", [1], first=1)
    assert await peer.values(1) == {first_id(1) + 1: 111}
    second, _ = await peer.asked()
    peer.answer(second, [2])
    assert await peer.values(1) == {first_id(1): [1, 2]}


@pytest.mark.parametrize("seed", range(5))
async def test_every_call_of_a_random_mix_is_answered(
    peer: Peer, autojump_clock: trio.testing.MockClock, seed: int
) -> None:
    random = Random(seed)
    expected: dict[int, Any] = {}

    async def send() -> None:
        for index in range(600):
            keys = [str(n) for n in range(random.randrange(3))]
            calls: list[tuple[str, list[Any], Any]] = [
                ("add", [index], index + 110),
                ("nap", [random.random(), index], index),
                ("row_after_row", [keys], keys),
                ("rows_at_once", [keys], {key: key for key in keys}),
            ]
            function, args, value = random.choice(calls)
            expected[first_id(1) + index] = value
            peer.execute(function, args, first=index)
            if random.random() < 0.05:
                await trio.sleep(random.random())

    found: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while len(found) < 600:
            heard: m.CallsCompleted | m.CallsWaiting = await peer.hear(m.CallsCompleted, m.CallsWaiting)
            if isinstance(heard, m.CallsWaiting):
                peer.answer(heard, *[[unpack_value(request)[2][0]] for request in heard.requests])
            else:
                found |= {call: unpack_value(value) for call, value in zip(heard.ids, heard.values, strict=True)}
    assert found == expected


async def test_every_kind_of_read_is_a_request(peer: Peer) -> None:
    peer.execute("rows", [])
    for request, answer in (
        (["table.get_many", "tokens", ["a", ["b", 1]], ["symbol"]], [None, None]),
        (["table.scan", "tokens", [["n", ">", 1]], ["-n"], 2], [{"n": 2}]),
        (["bundle.get", 1, "0xab"], {"block": {}}),
    ):
        waiting, requests = await peer.asked()
        assert requests == [request]
        peer.answer(waiting, answer)
    assert await peer.value() == [[None, None], [{"n": 2}], {"block": {}}]


async def test_child_tasks_may_read_at_the_same_time(peer: Peer) -> None:
    peer.execute("rows_at_once", [["a", "b", "c"]])
    asked: list[str] = []
    while len(asked) < 3:
        waiting, requests = await peer.asked()
        keys = [request[2][0] for request in requests]
        asked += keys
        peer.answer(waiting, *[[{"key": key}] for key in keys])
    assert await peer.value() == {key: {"key": key} for key in "abc"}


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_read_error_let_through_decides_whether_the_call_is_tried_again(peer: Peer, retryable: bool) -> None:
    peer.execute("row", ["a"])
    waiting, _ = await peer.asked()
    peer.answer(waiting, ("ReadError", "connection lost", retryable))
    failed = await peer.hear(m.CallFailed)
    assert failed.error[:3] == ["IO_ERROR", "ReadError", "connection lost"]
    assert failed.retryable is retryable


async def test_a_read_error_may_be_caught(peer: Peer) -> None:
    peer.execute("caught_read", [])
    waiting, _ = await peer.asked()
    peer.answer(waiting, ("ReadError", "no such table", False))
    assert await peer.value() == "caught no such table False"


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("impatient_row", [])
    slow, _ = await peer.asked()
    quick, requests = await peer.asked()
    assert requests[0][2] == ["quick"]
    peer.answer(slow, [{"late": True}])
    peer.answer(quick, [{"late": False}])
    assert await peer.value() == {"late": False}


async def test_a_request_that_cannot_be_sent_fails_the_call() -> None:
    async with executor() as peer:
        await peer.greet(max_frame_bytes=70_000)
        peer.open()
        failed = await peer.failure("row", "k" * 10_000)
        assert failed.error[0] == "IO_ERROR"
        assert "does not fit a frame" in failed.error[2]


async def test_a_context_that_outlives_its_call_refuses_to_read(peer: Peer) -> None:
    await peer.outcome("keeps_context")
    failed = await peer.failure("uses_kept_context")
    assert "belongs to a call that has ended" in failed.error[2]


# --------------------------------------------------------------------------------------------------------------------
# Output


async def test_what_a_call_prints_becomes_lines_of_its_log(peer: Peer) -> None:
    peer.execute("prints", ["one\ntwo"], ["three", ""])
    await peer.values(2)
    lines = [await peer.hear(m.CallLog) for _ in range(3)]
    assert lines == [
        m.CallLog(first_id(1), "info", "one"),
        m.CallLog(first_id(1), "info", "two"),
        m.CallLog(first_id(1) + 1, "info", "three"),
    ]


async def test_what_a_calls_tasks_and_threads_print_is_the_calls(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("prints_everywhere", [], first=3)
    lines = [await peer.hear(m.CallLog) for _ in range(2)]
    assert lines == [
        m.CallLog(first_id(1) + 3, "info", "from a child"),
        m.CallLog(first_id(1) + 3, "info", "from a thread"),
    ]


async def test_an_endless_line_is_cut(peer: Peer) -> None:
    peer.execute("prints", ["x" * 100_000, ""])
    line = await peer.hear(m.CallLog)
    assert len(line.message) <= 8 * 1024
    assert "(shortened)" in line.message


async def test_log_lines_have_levels(peer: Peer) -> None:
    peer.execute("logs", [])
    lines = [await peer.hear(m.CallLog) for _ in range(6)]
    assert [(line.level, line.message) for line in lines[:5]] == [
        ("debug", "plain 1%"),
        ("info", "{'n': 1}"),
        ("warning", "w"),
        ("error", "e"),
        ("critical", "c"),
    ]
    assert lines[5].level == "error"
    assert lines[5].message.startswith("it broke\nTraceback")
    assert lines[5].message.endswith("ValueError: inner")


async def test_a_flood_of_lines_is_dropped_and_counted_and_the_call_does_not_wait(peer: Peer) -> None:
    peer.execute("floods", [1_000])
    await peer.value()
    kept = [message for message in peer.unheard if isinstance(message, m.CallLog)]
    assert 0 < len(kept) < 1_000
    peer.unheard.clear()
    await peer.outcome("prints", "after")
    note, line = [message for message in peer.unheard if isinstance(message, m.CallLog)]
    assert f"{1_000 - len(kept)} lines before this one were dropped" in note.message
    assert line.message == "after"


# --------------------------------------------------------------------------------------------------------------------
# Cancellation


async def test_a_suspended_call_is_cancelled_and_not_answered(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("nap", [1_000, "a"], [5, "b"])
    peer.say(m.CancelCall(first_id(1), 1))
    assert await peer.values(1) == {first_id(1) + 1: "b"}
    await trio.sleep(2_000)
    assert await peer.outcome("add", 1) == 111
    assert peer.unheard == []


async def test_cancelling_names_one_attempt(peer: Peer, autojump_clock: trio.testing.MockClock) -> None:
    peer.execute("nap", [10, "second"], attempt=2)
    peer.say(m.CancelCall(first_id(1), 1))
    assert await peer.value() == "second"


async def test_a_queued_call_is_cancelled_before_it_begins(peer: Peer) -> None:
    peer.execute("counted_bytes", *[[n, 0] for n in range(3)])
    peer.say(m.CancelCall(first_id(1) + 1, 1))
    assert list(await peer.values(2)) == [first_id(1), first_id(1) + 2]
    assert sys.modules["calls"].started == [0, 2]


async def test_a_closed_task_loses_its_calls_and_others_keep_theirs(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.open(2)
    peer.execute("nap", [100, "closed"], task_no=1)
    peer.execute("nap", [200, "open"], task_no=2)
    await trio.sleep(1)
    peer.execute("nap", [1, "queued"], task_no=1, first=1)
    peer.say(m.CloseTask(1))
    assert await peer.values(1) == {first_id(2): "open"}
    assert peer.unheard == []


async def test_a_cancelled_call_may_finish_what_it_shields(peer: Peer, autojump_clock: trio.testing.MockClock) -> None:
    peer.execute("stubborn", [])
    await trio.sleep(1)
    peer.say(m.CancelCall(first_id(1), 1))
    waiting, requests = await peer.asked()
    assert requests[0][2] == ["cleanup"]
    peer.answer(waiting, [None])
    assert await peer.outcome("add", 1) == 111
    assert peer.unheard == []


async def test_a_call_that_swallows_its_cancellation_is_not_answered_and_the_next_is_not_cancelled(
    peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    peer.execute("swallows_cancellation", [])
    await trio.sleep(1)
    peer.say(m.CancelCall(first_id(1), 1))
    peer.execute("nap", *[[1, n] for n in range(70)], first=1)
    assert len(await peer.values(70)) == 70
    assert peer.unheard == []
