"""A watchdog for the event loop of a server: a process that kills the server if the loop hangs.

Some code can't be interrupted from inside the process: an async tool that blocks, or the decoding of a value from the
sandbox that takes hours. The server then answers no requests and ignores signals to stop. So the loop regularly sends a
byte to a watchdog process, which kills the server when none arrives. The client or supervisor that started the server
starts it again.
"""

import asyncio
import os
import subprocess
import sys
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
told = f"onetool (process {pid}) did not respond for {seconds:g} s and was killed: its event loop was blocked by "
told += f"an async tool that does not await, or by a hostile value. {sys.argv[3]}=0 turns this check off.\\n"
os.write(2, told.encode())
"""


class Watchdog:
    """A watchdog of the running event loop, until `close`. Its process starts a second later, to keep the startup fast.

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
                self._process.stdin.write(b"!")  # closing may not do: a tool's child process may hold the pipe, too
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)

    def _begin(self) -> None:
        if not self._seconds:
            return
        with suppress(OSError):  # the machine may have no free process
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), str(self._seconds), VARIABLE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
                process_group=0,  # Ctrl-C in the terminal does not reach it
            )
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
            self._beat()

    def _beat(self) -> None:
        with suppress(OSError):  # the watchdog may have ended, which must not stop the server
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(b".")
        self._timer = self._loop.call_later(self._seconds / _OFTEN, self._beat)


def _wanted() -> float:
    """Return the timeout in seconds; 0 for no watchdog."""
    if sys.gettrace() is not None:  # a debugger stops the server
        return 0.0
    try:
        seconds = float(os.environ.get(VARIABLE, SECONDS))
    except ValueError:
        return SECONDS
    return seconds if seconds > 0 else 0.0
