"""A log handler that never blocks the server: when nobody reads standard error, lines are dropped.

A plain handler blocks in `write` once a pipe that nobody reads is full, and with it every client. Lines that may wait
(those of the access log) are written together some milliseconds later, since one write for each would be slow.
"""

import asyncio
import logging
import os
import select
from collections import deque
from collections.abc import Callable

MOST_LINES = 1000  # that wait for a reader
TOGETHER_S = 0.03
log = logging.getLogger("onetool")


class NonBlockingHandler(logging.Handler):
    """Writes lines while the file descriptor is writable, and keeps the last MOST_LINES lines while it is not."""

    def __init__(self, fd: int, formatter: logging.Formatter | None = None) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        self._ready = poll.poll

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record).encode("utf-8", "backslashreplace") + b"\n")
        except Exception:  # noqa: BLE001 - a record that can't be told is told so, as by every handler
            self.handleError(record)
            return
        if getattr(record, "may_wait", False):
            self._write_soon()
        else:
            self.flush()
            self._shorten()

    def _write_soon(self) -> None:
        if len(self._lines) > MOST_LINES:
            self.flush()
            self._shorten()
        elif self._timer is None:
            self._flush_soon()

    def _shorten(self) -> None:
        if len(self._lines) > MOST_LINES:
            del self._lines[1]  # the first may be half written
            self._lost += 1

    def _flush_soon(self) -> None:
        try:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_S, self.flush)
        except RuntimeError:  # there is no loop
            self.flush()

    def flush(self) -> None:
        """Write as many lines as the descriptor takes without blocking."""
        self.acquire()
        try:
            self._timer = None
            while self._lines and self._ready(0):
                piece = self._next_piece()
                written = self._write(piece[: select.PIPE_BUF])
                if written < len(piece):
                    self._lines.appendleft(piece[written:])
            if self._lost and not self._lines:
                text = f"{self._lost} log lines were lost: nobody read them in time"
                self._lost = 0
                self.emit(logging.LogRecord(log.name, logging.WARNING, "", 0, text, None, None))
        finally:
            self.release()

    def _next_piece(self) -> bytes:
        """Whole lines up to PIPE_BUF bytes, which a writable pipe takes without blocking; or one longer line."""
        piece = self._lines.popleft()
        while self._lines and len(piece) + len(self._lines[0]) <= select.PIPE_BUF:
            piece += self._lines.popleft()
        return piece

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except OSError:  # the reader is gone for good
            return len(data)

    def close(self) -> None:
        self.flush()
        super().close()


def make_log_non_blocking(
    in_pipes: Callable[[int, logging.Formatter], NonBlockingHandler] = NonBlockingHandler,
) -> None:
    """Replace the handlers of our log by ones that do not block. `in_pipes`: the class for pipes and files."""
    if not hasattr(select, "poll"):
        return
    for index, handler in enumerate(log.handlers):
        if isinstance(handler, logging.StreamHandler) and handler.formatter is not None:
            handler.flush()
            make = NonBlockingHandler if handler.stream.isatty() else in_pipes
            log.handlers[index] = make(handler.stream.fileno(), handler.formatter)
