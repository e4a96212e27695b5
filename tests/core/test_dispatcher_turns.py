"""DispatcherCore: the bound on how far apart tasks with much to send can come, whatever the order of answers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from blockx.worker.core.call_events import (
    SendCalls,
)
from blockx.worker.core.fairness import MAX_CHARGE_US, QUANTUM_US
from tests.core.dispatcher_rig import Rig

BIG = 5_000


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    costs_us=st.lists(st.sampled_from([5, 70, 400, 1_000, 2_500, 12_000]), min_size=2, max_size=4),
    executors=st.integers(1, 3),
    data=st.data(),
)
def test_tasks_with_much_to_send_get_equal_shares_of_work(
    costs_us: list[int], executors: int, data: st.DataObject
) -> None:
    rig = Rig(executors=executors, first_window=1_024, max_backlog_calls=8)
    for task, cost_us in enumerate(costs_us, 1):
        rig.learn(cost_us, f"f{task}")
    commands = [c for task in range(1, len(costs_us) + 1) for c in rig.add(task, BIG, (0, f"f{task}", None))]
    frames = [command for command in commands if isinstance(command, SendCalls)]
    served: Counter[int] = Counter()
    for _ in range(120):
        frame = frames.pop(data.draw(st.integers(0, len(frames) - 1)))
        first = frame.task_no << 20
        cpu_us = costs_us[frame.task_no - 1] - 4
        commands = rig.complete(
            frame.task_no, [call - first for call in frame.ids], executor=frame.executor, cpu_us=cpu_us
        )
        sends = [command for command in commands if isinstance(command, SendCalls)]
        frames += sends
        for send in sends:
            served[send.task_no] += len(send.ids) * costs_us[send.task_no - 1]
        shares = [served[task] for task in range(1, len(costs_us) + 1)]
        assert max(shares) - min(shares) <= 2 * (QUANTUM_US + max(costs_us))
    assert max(costs_us) <= MAX_CHARGE_US
