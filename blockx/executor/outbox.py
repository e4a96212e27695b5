"""What an executor has to tell its worker: collected while calls run, sent in frames of many."""

from __future__ import annotations

import threading

import trio

from blockx.executor.failures import Failure, shortened
from blockx.stream import MessageStream
from blockx.wire import messages as m

FRAME_VALUE_BYTES = 256 * 1024
"""A frame is sent early when its values reach this, so that large results do not pile up into a larger frame."""

LOG_UNSENT_BYTES = 256 * 1024
"""With more than this unsent, log lines are dropped and counted: a log never makes a call wait."""

MAX_LOG_LINE_BYTES = 8 * 1024


class Outbox:
    """Collects results and waits. A full frame goes out at once, what remains when the scheduler pass is over."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._completed = m.CallsCompleted([], [], [], [])
        self._completed_bytes = 0
        self._waiting = m.CallsWaiting([], [], [], [], [])
        self._waiting_bytes = 0
        self._dropped_lines = 0
        self._unfinished_lines: dict[int, str] = {}
        self._thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._work = trio.lowlevel.ParkingLot()

    def completed(self, call_id: int, attempt: int, cpu_us: int, value: bytes) -> None:
        """A call has returned this packed value."""
        self.end_line(call_id)
        if self._completed_bytes + len(value) > FRAME_VALUE_BYTES:
            self._send_completed()
        batch = self._completed
        batch.ids.append(call_id)
        batch.attempts.append(attempt)
        batch.cpu_us.append(cpu_us)
        batch.values.append(value)
        self._completed_bytes += len(value)
        if len(batch.ids) == m.MAX_CALLS_PER_FRAME:
            self._send_completed()
        elif len(batch.ids) == 1:
            self._work.unpark()

    def waits(self, call_id: int, attempt: int, wait_id: int, cpu_us: int, request: bytes) -> None:
        """A call has asked for something and is suspended until the answer under `wait_id`."""
        if self._waiting_bytes + len(request) > FRAME_VALUE_BYTES:
            self._send_waiting()
        batch = self._waiting
        batch.ids.append(call_id)
        batch.attempts.append(attempt)
        batch.wait_ids.append(wait_id)
        batch.cpu_us.append(cpu_us)
        batch.requests.append(request)
        self._waiting_bytes += len(request)
        if len(batch.ids) == m.MAX_CALLS_PER_FRAME:
            self._send_waiting()
        elif len(batch.ids) == 1:
            self._work.unpark()

    def failed(self, call_id: int, attempt: int, cpu_us: int, failure: Failure) -> None:
        self.end_line(call_id)
        self._stream.post(m.CallFailed(call_id, attempt, failure.as_fields(), failure.retryable, cpu_us))

    def log(self, call_id: int, level: str, message: str) -> None:
        """A line of a call's log, from any thread; shortened, or dropped while too much is unsent."""
        if threading.get_ident() != self._thread:
            self._token.run_sync_soon(self.log, call_id, level, message)
            return
        if self._stream.unsent_bytes > LOG_UNSENT_BYTES:
            self._dropped_lines += 1
            return
        if self._dropped_lines:
            note = f"{self._dropped_lines} lines before this one were dropped: more was logged than could be sent"
            self._stream.post(m.CallLog(call_id, "warning", note))
            self._dropped_lines = 0
        self._stream.post(m.CallLog(call_id, level, shortened(message, MAX_LOG_LINE_BYTES)))

    def printed(self, call_id: int, text: str) -> None:
        """A piece of what a call prints, from any thread; each line becomes a log line of level info."""
        if threading.get_ident() != self._thread:
            self._token.run_sync_soon(self.printed, call_id, text)
            return
        *lines, rest = (self._unfinished_lines.pop(call_id, "") + text).split("\n")
        for line in lines:
            self.log(call_id, "info", line)
        if len(rest) > MAX_LOG_LINE_BYTES:
            self.log(call_id, "info", rest)
        elif rest:
            self._unfinished_lines[call_id] = rest

    def end_line(self, call_id: int) -> None:
        """The call has ended: log what it printed without a line end."""
        if self._unfinished_lines:
            rest = self._unfinished_lines.pop(call_id, "")
            if rest:
                self.log(call_id, "info", rest)

    async def run(self) -> None:
        """Once in each scheduler pass, send what has been collected."""
        while True:
            self.send_collected()
            await self._work.park()

    def send_collected(self) -> None:
        if self._completed.ids:
            self._send_completed()
        if self._waiting.ids:
            self._send_waiting()

    async def wait_not_full(self) -> None:
        """A checkpoint, and longer while the worker does not read."""
        await self._stream.wait_not_full()

    def _send_completed(self) -> None:
        self._stream.post(self._completed)
        self._stream.flush()
        self._completed, self._completed_bytes = m.CallsCompleted([], [], [], []), 0

    def _send_waiting(self) -> None:
        self._stream.post(self._waiting)
        self._stream.flush()
        self._waiting, self._waiting_bytes = m.CallsWaiting([], [], [], [], []), 0
