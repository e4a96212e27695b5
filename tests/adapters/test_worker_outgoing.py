from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockx.wire import messages as m
from blockx.wire.frames import MAX_FRAME_BYTES, MAX_VALUE_BYTES, encode
from blockx.worker.core import call_events as ce
from blockx.worker.outgoing import FRAME_TARGET_BYTES, execute_calls, resume_calls

EXECUTOR, TASK = ce.ExecutorId(1), ce.TaskNo(1)
SIZES = st.lists(st.sampled_from([0, 1, 1_000, FRAME_TARGET_BYTES // 2, FRAME_TARGET_BYTES, 2_000_000]), max_size=12)


def send(args: list[bytes]) -> ce.SendCalls:
    ids = [ce.call_id(TASK, index) for index in range(len(args))]
    return ce.SendCalls(
        executor=EXECUTOR, task_no=TASK, function="f", block=b"b", ids=ids, attempts=[1] * len(ids), args=args
    )


def resume(values: list[bytes | None]) -> ce.ResumeCalls:
    ids = [ce.call_id(TASK, index) for index in range(len(values))]
    return ce.ResumeCalls(
        executor=EXECUTOR,
        ids=ids,
        wait_ids=list(range(len(ids))),
        io_us=[7] * len(ids),
        values=values,
        errors=[("ReadError", "gone", True) if value is None else None for value in values],
    )


@given(SIZES)
def test_split_calls_are_the_same_calls_in_the_same_order(sizes: list[int]) -> None:
    command = send([bytes(size) for size in sizes])
    frames = list(execute_calls(command, 5))
    assert [call for frame in frames for call in frame.ids] == command.ids
    assert [args for frame in frames for args in frame.args] == command.args
    assert {(frame.function, frame.block, frame.budget_us) for frame in frames} <= {("f", b"b", 5)}
    assert all(len(frame.ids) == 1 or sum(map(len, frame.args)) <= FRAME_TARGET_BYTES for frame in frames)


@given(SIZES)
def test_split_answers_keep_values_and_errors_together(sizes: list[int]) -> None:
    command = resume([bytes(size) if size else None for size in sizes])
    frames = list(resume_calls(command))
    assert [wait for frame in frames for wait in frame.wait_ids] == command.wait_ids
    pairs = [pair for frame in frames for pair in zip(frame.values, frame.errors, strict=True)]
    assert pairs == [(value, ["ReadError", "gone", True] if value is None else None) for value in command.values]


def test_the_largest_value_fits_a_frame() -> None:
    largest = bytes(MAX_VALUE_BYTES)
    frames: list[m.Message] = [*execute_calls(send([largest]), 5), *resume_calls(resume([largest]))]
    assert all(len(encode(frame)) <= MAX_FRAME_BYTES + 4 for frame in frames)


def test_small_calls_leave_in_one_frame() -> None:
    assert len(list(execute_calls(send([b"x"] * 64), 5))) == 1
