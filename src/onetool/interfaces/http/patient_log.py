"""Log lines that never hold up the server: who does not read our standard error loses lines, and not the service.

A plain handler blocks in `write` once a pipe that nobody reads is full, and every client with it.
"""

import logging
import os
import select
from collections import deque

from onetool.interfaces.http.access import AccessFormatter

MOST_LINES = 1000  # that wait for a reader
log = logging.getLogger("onetool")


class PatientHandler(logging.Handler):
    """Writes to a file descriptor while that takes something, and keeps the last lines while it does not."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._lost = 0
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        self._ready = poll.poll

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
        except Exception:  # noqa: BLE001 - a record that can't be told is told so, as by every handler
            self.handleError(record)
            return
        # A pipe that is ready takes so much at once; more might block.
        if not self._lines and len(line) <= select.PIPE_BUF and self._ready(0):
            self._write(line)
            return
        self._lines.append(line)
        self.write_what_waits()
        if len(self._lines) > MOST_LINES:
            del self._lines[1]  # the first may be half written
            self._lost += 1

    def write_what_waits(self) -> None:
        """As much of it as is taken now."""
        while self._lines and self._ready(0):
            line = self._lines[0]
            written = self._write(line[: select.PIPE_BUF])
            if written < len(line):
                self._lines[0] = line[written:]
                continue
            self._lines.popleft()
            if self._lost:
                text = f"{self._lost} log lines were lost: nobody read them in time"
                self._lost = 0
                lost = logging.LogRecord(log.name, logging.WARNING, "", 0, text, None, None)
                self._lines.appendleft(self.format(lost).encode() + b"\n")

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except OSError:  # nobody is there to read, and nobody will be
            return len(data)

    def close(self) -> None:
        self.write_what_waits()
        super().close()


def make_log_patient() -> None:
    """From here on our log goes to its stream as before, but waits for nobody."""
    if not hasattr(select, "poll"):
        return
    for index, handler in enumerate(log.handlers):
        if isinstance(handler, logging.StreamHandler) and handler.formatter is not None:
            handler.flush()
            patient = PatientHandler(handler.stream.fileno())
            patient.setFormatter(handler.formatter if handler.stream.isatty() else AccessFormatter(handler.formatter))
            log.handlers[index] = patient
