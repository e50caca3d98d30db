"""ServingProcess: one worker, as the supervisor sees it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from time import monotonic

import msgspec

from onetool.interfaces.workers.channel import LAST, STOPPING, Reloaded, Serving, WorkerOrder, decode_report

PROGRAM = ("-P", "-m", "onetool.interfaces.workers.worker")
LONGEST_LINE = 1024**2
LAST_S = 5.0  # between the end of its channel and the end of the process


class ServingProcess:
    """Started when it is made. `serving` is set when clients can connect, `ended` has the exit code at the end."""

    def __init__(self, order: WorkerOrder) -> None:
        self.order = order
        self.began = monotonic()
        self.serving: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the greeting
        self.reloads: asyncio.Queue[Reloaded] = asyncio.Queue()
        ours, theirs = socket.socketpair()
        with theirs:
            # Not through a shell, and no fork of our own: the interpreter starts anew, without our threads and locks.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *order.sockets),
                process_group=0,  # what is typed at the terminal is for the supervisor alone
            )
        self._channel = ours
        self._writer: asyncio.StreamWriter | None = None
        self.ended: asyncio.Task[int] = asyncio.create_task(self._live())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_serving(self) -> bool:
        return self.serving.done() and not self.serving.cancelled() and not self.ended.done()

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def tell_stopping(self, is_last: bool) -> None:
        """All workers are about to stop, and this one after all others."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(LAST if is_last else STOPPING)

    async def _live(self) -> int:
        try:
            reader, writer = await asyncio.open_connection(sock=self._channel, limit=LONGEST_LINE)
            self._writer = writer
            try:
                with suppress(ConnectionError):
                    writer.write(msgspec.json.encode(self.order) + b"\n")
                    while line := await reader.readline():
                        self._take(line)
            finally:
                writer.close()
            return await self._exit_code()
        finally:
            self.serving.cancel()

    def _take(self, line: bytes) -> None:
        report = decode_report(line)
        if isinstance(report, Serving):
            if not self.serving.done():
                self.serving.set_result(report.greeting)
        else:
            self.reloads.put_nowait(report)

    async def _exit_code(self) -> int:
        """The channel has ended, so the process has, or is about to."""
        until = monotonic() + LAST_S
        while self._process.poll() is None:
            if monotonic() > until:
                self.signal(signal.SIGKILL)
            await asyncio.sleep(0.01)
        return self._process.returncode
