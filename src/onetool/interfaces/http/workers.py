"""`onetool serve --workers N`: N processes of the same command, which serve on the sockets of their parent.

The parent answers no requests. It starts a worker again that was killed, stops all of them on SIGTERM or SIGINT (a
second signal: at once), and passes SIGHUP on. A worker that ends with an error ends the server.

The standard input of a worker is a pipe. Its first line is the order, which has a secret that other users could read in
the command line. The pipe ends with the parent, and so does the worker.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from secrets import token_bytes
from threading import Event, Thread
from typing import IO

import msgspec

from onetool.interfaces.http.listen import BoundAddress

log = logging.getLogger("onetool.serve")
VARIABLE = "ONETOOL_IS_WORKER"
LOOK_S = 0.1  # between two looks whether a worker has ended
PAUSE_S = 1.0  # until a worker that was killed is started again
ORPHAN_S = 1.0  # for a worker to stop after its parent has died


class Order(msgspec.Struct, frozen=True):
    """What a worker gets from its parent. `secret` is the same for all workers of this start."""

    secret: bytes
    greets: bool  # the first start of the first worker
    host: str
    port: int
    addresses: tuple[str, ...]
    sockets: tuple[int, ...]  # descriptors

    @property
    def address(self) -> BoundAddress:
        sockets = tuple(socket.socket(fileno=one) for one in self.sockets)
        return BoundAddress(self.host, self.port, self.addresses, sockets)


class Workers:
    """The worker processes, in their parent."""

    def __init__(self, count: int, address: BoundAddress, stdout: int) -> None:
        """Start the workers. `stdout` is the descriptor for their greeting."""
        self._address = address
        self._stdout = stdout
        self._secret = token_bytes(32)
        self._had_terminal = os.isatty(0)
        self._is_over = Event()
        self._stopped_by = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._hang_up)
        self._processes = [self._start(greets=not number) for number in range(count)]

    def run(self) -> int:
        """Serve until a signal asks to stop, and return the signal; or until a worker fails, and exit as it did."""
        while not self._is_over.wait(LOOK_S):
            for number, process in enumerate(self._processes):
                if (code := process.poll()) is None:
                    continue
                if code > 0:
                    log.error("A worker (process %d) has ended with exit code %d, see its log", process.pid, code)
                    self._pass_on(signal.SIGTERM)
                    self._wait()
                    sys.exit(code)
                why = f"was ended by signal {-code}" if code else "has ended"
                log.error("A worker (process %d) %s; starting another one", process.pid, why)
                if not self._is_over.wait(PAUSE_S):
                    self._processes[number] = self._start()
        for one in self._address.sockets:
            one.close()  # else clients that connect after the last worker has stopped would wait in vain
        self._pass_on(signal.SIGTERM)
        self._wait()
        return self._stopped_by

    def _start(self, greets: bool = False) -> "subprocess.Popen[bytes]":
        descriptors = tuple(one.fileno() for one in self._address.sockets)
        order = Order(self._secret, greets, *self._address[:3], descriptors)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", "onetool", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=self._stdout,
            pass_fds=descriptors,
            env={**os.environ, VARIABLE: "1"},
            process_group=0,  # Ctrl-C at the terminal is only for the parent
        )
        pipe: IO[bytes] = process.stdin  # pyright: ignore[reportAssignmentType]
        with suppress(BrokenPipeError):  # it was killed
            pipe.write(msgspec.json.encode(order) + b"\n")
            pipe.flush()
        return process

    def _wait(self) -> None:
        for process in self._processes:
            process.wait()

    def _pass_on(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _stop(self, number: int, _frame: object) -> None:
        if self._stopped_by:
            log.info("Stopping at once: %s", signal.Signals(number).name)
            self._pass_on(signal.SIGTERM)
        self._stopped_by = self._stopped_by or number
        self._is_over.set()

    def _hang_up(self, number: int, frame: object) -> None:
        if self._had_terminal and not os.isatty(0):
            self._stop(number, frame)
        else:
            self._pass_on(number)


def own_order() -> Order | None:
    """Return the order of this process if it is a worker, which ends with its parent from now on. Called once."""
    if os.environ.pop(VARIABLE, None) is None:
        return None
    pipe = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:  # for tools and their children
        os.dup2(nothing.fileno(), 0)
    order = msgspec.json.decode(pipe.readline(), type=Order)
    for one in order.sockets:
        os.set_inheritable(one, False)

    def watch() -> None:
        pipe.read()  # until the parent is gone
        os.kill(os.getpid(), signal.SIGTERM)
        Event().wait(ORPHAN_S)
        os._exit(1)

    Thread(target=watch, name="onetool-parent", daemon=True).start()
    return order
