"""One worker process and its two pipes. One thread at a time talks to it; any thread may kill it."""

import os
import select
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from onetool.sandbox import MessageTooLargeError, OutOfMemoryError, ProtocolError, WorkerError
from onetool.sandbox.messages import Ok, read_event

OUT_OF_MEMORY = 65  # exit status of a worker that was refused memory
LARGE = 64 * 1024  # bytes of a message
PIPE_BYTES = 1024 * 1024
HEADER = 4  # bytes before a message that say how long it is
END_SECONDS = 1.0  # that a worker gets to end by itself, once its pipes are closed or it was killed
CONTENT = {0x12: "what a tool was given", 0x32: "the result"}  # of a message, by its first byte


def binary() -> str:
    """The program, as `pydantic-monty-runtime` installs it. FileNotFoundError where it is not there."""
    name = "monty.exe" if os.name == "nt" else "monty"
    if given := os.environ.get("MONTY_BIN"):
        return given
    for scheme in (None, f"{os.name}_user"):
        folder = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        if (found := Path(folder) / name).is_file():
            return str(found)
    if found := shutil.which(name):
        return found
    raise FileNotFoundError("the sandbox's program `monty` is not installed: pip install pydantic-monty-runtime")


class WorkerProcess:
    """A worker, from its start to its end."""

    def __init__(self, path: str, most_frame_bytes: int) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - our own program, without a shell
            [path, "subprocess"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what it has to say, it says as an event
            env=_environment(),
            bufsize=0,
            **_own_group(),
        )
        self._pipes: tuple[Any, Any] = (self._popen.stdin, self._popen.stdout)
        self._stdin, self._stdout = (pipe.fileno() for pipe in self._pipes)
        _enlarge(self._stdin, self._stdout)
        self._buffer = b""
        self._most_frame_bytes = most_frame_bytes
        self._lock = Lock()
        self._killed = False
        self.pid = self._popen.pid
        self.sessions = 0  # that it has served
        self.unacknowledged = 0  # requests that were sent ahead

    def send(self, *requests: bytes) -> None:
        try:
            for request in requests:
                size = len(request).to_bytes(HEADER, "little")
                if len(request) < LARGE:
                    self._write(size + request)
                else:  # not copied once more
                    self._write(size)
                    self._write(request)
        except OSError:  # it has ended
            raise self._exit_reason() from None

    def _write(self, data: bytes) -> None:
        sent = os.write(self._stdin, data)
        while sent < len(data):
            sent += os.write(self._stdin, memoryview(data)[sent:])

    def send_ahead(self, *requests: bytes) -> None:
        """Send requests that are answered with Ok, and do not wait for that."""
        self.send(*requests)
        self.unacknowledged += len(requests)

    def receive(self) -> bytes:
        """The next message. Waits for it."""
        while (missing := self._missing()) > 0:
            if len(self._buffer) <= HEADER:
                self._buffer += self._read(65_536)
                continue
            begun, self._buffer = self._buffer[HEADER:], b""
            return self._read_rest(begun, missing)
        return self._next_frame()

    def acknowledged(self, seconds: float | None = None) -> bool:
        """Whether all that was sent ahead is done. Waits for it: so long, or until it is."""
        until = None if seconds is None else monotonic() + seconds
        while self.unacknowledged:
            if self._missing() > 0:
                if until is not None and not self._has_output(until - monotonic()):
                    return False
                self._buffer += self._read(65_536)
            elif isinstance(read_event(self._next_frame()), Ok):
                self.unacknowledged -= 1
            else:
                raise ProtocolError("another answer than Ok")
        return True

    def kill(self) -> None:
        """End it now, whatever it does. From any thread, any number of times."""
        with self._lock:
            if not self._killed:
                self._killed = True
                self._popen.kill()

    @property
    def has_ended(self) -> bool:
        with self._lock:  # a number is not killed once the process that had it is waited for
            return self._killed or self._popen.poll() is not None

    def close(self) -> None:
        """Kill it, and give back all that it takes."""
        self.kill()
        # Somebody may still have it, whose tool is not through: the numbers soon stand for other files.
        self._stdin = self._stdout = -1
        for pipe in self._pipes:
            pipe.close()
        with self._lock:
            self._popen.wait()

    @property
    def has_unread(self) -> bool:
        """Whether the worker has sent more than the answer."""
        return bool(self._buffer)

    def _missing(self) -> int:
        """How many bytes at least are missing of the next message."""
        have = self._buffer
        if len(have) < HEADER:
            return HEADER - len(have)
        size = int.from_bytes(have[:HEADER], "little")
        if size > self._most_frame_bytes:
            if len(have) == HEADER:
                return 1
            # The rest is not read: it costs nothing that it is large.
            self.kill()
            raise MessageTooLargeError(CONTENT.get(have[HEADER], "what the code has to say"), self._most_frame_bytes)
        return size + HEADER - len(have)

    def _next_frame(self) -> bytes:
        end = HEADER + int.from_bytes(self._buffer[:HEADER], "little")
        frame, self._buffer = self._buffer[HEADER:end], self._buffer[end:]
        return frame

    def _read(self, most: int) -> bytes:
        try:
            data = os.read(self._stdout, most)
        except OSError:
            data = b""
        if not data:
            raise self._exit_reason()
        return data

    def _read_rest(self, begun: bytes, missing: int) -> bytes:
        """A message, into one buffer: making one for each piece takes longer than reading it."""
        data = bytearray(len(begun) + missing)
        data[: len(begun)] = begun
        view, read = memoryview(data), len(begun)
        while read < len(data):
            try:
                count = self._pipes[1].readinto(view[read:])
            except (OSError, ValueError):  # it was closed
                count = 0
            if not count:
                raise self._exit_reason()
            read += count
        return bytes(data)

    def _has_output(self, seconds: float) -> bool:
        """Whether there is something to read, after so long at most. Windows can't tell: there it never seems so."""
        if not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def _exit_reason(self) -> WorkerError:
        with suppress(subprocess.TimeoutExpired):
            if self._popen.wait(END_SECONDS) == OUT_OF_MEMORY:
                return OutOfMemoryError()
        return WorkerError()


def _enlarge(*pipes: int) -> None:
    """Give large messages room, where the system has some: it is shared by all that a person runs."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        for pipe in pipes:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _environment() -> dict[str, str]:
    """An empty environment; Windows needs SYSTEMROOT to start a program."""
    return {"SystemRoot": os.environ["SYSTEMROOT"]} if os.name == "nt" else {}


def _own_group() -> dict[str, Any]:
    """Ctrl-C at a terminal reaches the whole group; whether the run ends by it is for us to say."""
    if os.name == "nt":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"process_group": 0}
