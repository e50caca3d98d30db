"""What keeps a server from being blocked for good: a watchdog for its event loop, and a log that never waits.

There is code that nobody can interrupt from inside: an async tool that blocks, or a value from the sandbox that takes
hours to become an object here. Such a server answers nobody any more, and does not even end when asked to. So a process
watches it, to which the loop has to send a byte now and then, and kills it. One that is gone is started again, by
whoever looks after it: the client that it belongs to, or a supervisor.

A plain log handler blocks in `write` once a pipe that nobody reads is full, and with it every client. Ours drops lines
then. Lines that may wait (those of the access log) are written together some milliseconds later, since one write for
each would be slow.
"""

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

VARIABLE = "ONETOOL_WATCHDOG"  # seconds; 0 is none
SECONDS = 60.0
LATER = 1.0  # seconds after the start
_OFTEN = 4  # signs of life in that time

_CODE = """
import os, select, signal, sys
pid, seconds = int(sys.argv[1]), float(sys.argv[2])
def is_stopped():
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
while True:
    if select.select([0], [], [], seconds)[0]:
        if os.read(0, 4096)[-1:] in (b"", b"!"):
            sys.exit()
    elif not is_stopped():  # by Ctrl-Z, or a debugger
        break
if os.getppid() != pid:
    sys.exit()
os.kill(pid, signal.SIGKILL)
told = f"onetool (process {pid}) answered nobody for {seconds:g} s and was ended. Something blocked its event loop: "
told += f"an async tool that does not await, or a hostile value. {sys.argv[3]}=0 lets it be.\\n"
os.write(2, told.encode())
"""

MOST_LINES = 1000  # that wait for a reader
TOGETHER_S = 0.03
log = logging.getLogger("onetool")


class Watchdog:
    """Watches the running event loop until `close`. It starts a second later, to keep the start fast.

    It is off when ONETOOL_WATCHDOG is 0, and under a debugger.
    """

    def __init__(self) -> None:
        self._seconds = _wanted()
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._timer = self._loop.call_later(LATER, self._begin)

    def close(self) -> None:
        self._timer.cancel()
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(b"!")  # closing may not do: a child that a tool forked may hold the pipe, too
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)

    def _begin(self) -> None:
        if not self._seconds:
            return
        with suppress(OSError):  # a machine that has no process left for it
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), str(self._seconds), VARIABLE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
                process_group=0,  # Ctrl-C is not meant for it
            )
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
            self._beat()

    def _beat(self) -> None:
        with suppress(OSError):  # it may be gone; that is no reason for us to be
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(b".")
        self._timer = self._loop.call_later(self._seconds / _OFTEN, self._beat)


def _wanted() -> float:
    """Seconds; 0 for none."""
    if sys.gettrace() is not None or not hasattr(signal, "SIGKILL"):  # Windows has none, nor what else the dog needs
        return 0.0
    try:
        seconds = float(os.environ.get(VARIABLE, SECONDS))
    except ValueError:
        return SECONDS
    return seconds if seconds > 0 else 0.0


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
