"""Starts the workers, replaces workers that die, and passes on signals. Each worker is a `ServingProcess`.

SIGTERM, SIGINT   the workers stop one after the other, while the rest take the calls; a second signal stops all at once
SIGHUP            the workers reload one after the other; if one fails, the others keep their config

The first worker is started before the others, which only read what it writes at its start. A worker that dies is
replaced at once; if it dies repeatedly, after a growing pause. The supervisor keeps trying while other workers serve;
when no worker serves, it gives up after some attempts.
"""

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_bytes, token_hex
from time import monotonic

import msgspec
from msgspec.structs import replace

from onetool.cluster.members import forget_replica
from onetool.core.errors import OneToolError
from onetool.database import DatabaseError
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.workers import LAST, Reloaded, Serving, WorkerOrder, decode_report

PROGRAM = ("-P", "-m", "onetool.interfaces.workers.worker")
log = logging.getLogger("onetool.serve")

QUICK_S = 10.0  # a worker that dies earlier has died quickly
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
MAX_DEATHS = 6  # quick deaths in a row, while no worker serves
IN_TURN_S = 15.0  # for all workers to stop one after the other; then the rest stop at once
STOP_S = 30.0  # until a stopping worker is killed
RELOAD_S = 60.0


class ServingProcess:
    """A worker process, started by the constructor.

    `serving` is done when clients can connect; `ended`, when it has exited.
    """

    def __init__(self, order: WorkerOrder) -> None:
        self.order = order
        self.began = monotonic()
        self.serving: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the greeting
        self.reloads: asyncio.Queue[Reloaded] = asyncio.Queue()
        ours, theirs = socket.socketpair()
        with theirs:
            # No shell and no fork: a new interpreter has none of our threads and locks.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *order.sockets),
                process_group=0,  # Ctrl-C at the terminal is only for the supervisor
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

    def tell_last(self) -> None:
        """Tell the worker that all workers are about to stop, and that it is the last."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(LAST)

    async def _live(self) -> int:
        try:
            reader, writer = await asyncio.open_connection(sock=self._channel, limit=1024**2)
            self._writer = writer
            try:
                with suppress(ConnectionError):
                    writer.write(msgspec.json.encode(self.order) + b"\n")
                    while line := await reader.readline():
                        report = decode_report(line)
                        if not isinstance(report, Serving):
                            self.reloads.put_nowait(report)
                        elif not self.serving.done():
                            self.serving.set_result(report.greeting)
            finally:
                writer.close()
            until = monotonic() + 5  # the channel has ended, so the process has, or is about to
            while self._process.poll() is None:
                if monotonic() > until:
                    self.signal(signal.SIGKILL)
                await asyncio.sleep(0.01)
            return self._process.returncode
        finally:
            self.serving.cancel()


class WorkersFailedError(OneToolError):
    """Raised when no worker stays alive. `exit_code` is the last worker's."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Supervisor:
    """A supervisor of `order.count` workers that serve at the address."""

    def __init__(self, order: WorkerOrder, address: BoundAddress, print_line: Callable[[str], None]) -> None:
        """Complete `order`, the first worker's, with sockets, a database and a key."""
        self._sockets = address.sockets
        self._folder = _private_folder()
        self._database = SqliteDatabase(self._folder / "workers.db")
        self._order = replace(
            order,
            sockets=tuple(listening.fileno() for listening in address.sockets),
            key=token_bytes(32),
            run=token_hex(8),
            database=str(self._folder / "workers.db"),
        )
        self._print_line = print_line
        self._workers: dict[int, ServingProcess] = {}
        self._deaths: dict[int, int] = {}  # quick deaths in a row
        self._stopped_by = 0
        self._keepers: list[asyncio.Task[None]] = []
        self._reload_wanted = asyncio.Event()
        self._stop_wanted = asyncio.Event()

    def run(self) -> int:
        """Serve until a signal asks to stop, and return the signal. Raises WorkersFailedError."""
        try:
            self._database.write(lambda work: None)  # makes the tables
            with asyncio.Runner() as runner:
                runner.run(self._run())
        finally:
            self._database.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._stopped_by

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        had_terminal = os.isatty(0)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, partial(self._stop, number))
        loop.add_signal_handler(signal.SIGHUP, partial(self._hang_up, had_terminal))
        reloading = asyncio.create_task(self._keep_reloading())
        stopping = asyncio.create_task(self._stop_wanted.wait())
        starting = asyncio.create_task(self._start())
        try:
            await _first_of(stopping, starting)
            while not self._stop_wanted.is_set():
                await _first_of(stopping, *self._keepers)
            starting.cancel()  # it would start the missing workers
            await self._stop_all()
        finally:
            for task in (reloading, stopping, starting, *self._keepers):
                task.cancel()
            for worker in self._workers.values():
                worker.signal(signal.SIGKILL)

    # Starting

    async def _start(self) -> None:
        """Start the first worker, then the others; print the greeting when all serve."""
        greeting = await self._start_worker(1)
        others = range(2, self._order.count + 1)
        await asyncio.gather(*map(self._start_worker, others))
        self._print_line(greeting)
        for number in (1, *others):
            self._keepers.append(asyncio.create_task(self._keep(number)))

    async def _start_worker(self, number: int) -> str:
        """Start a worker for the first time. Raises WorkersFailedError if it can't start; its log says why."""
        worker = self._launch(number)
        try:
            return await worker.serving
        except asyncio.CancelledError:
            if not worker.ended.done():
                raise  # we are stopping
        code = worker.ended.result()
        raise WorkersFailedError(f"worker {number} {_describe_end(code)} before it served", code if code > 0 else 1)

    def _launch(self, number: int) -> ServingProcess:
        place = f"worker {number} ({token_hex(4)})"
        worker = self._workers[number] = ServingProcess(replace(self._order, number=number, place=place))
        return worker

    async def _keep(self, number: int) -> None:
        """Replace the worker whenever it dies. Raises WorkersFailedError after too many deaths."""
        while True:
            worker = self._workers[number]
            code = await asyncio.shield(worker.ended)
            if self._stop_wanted.is_set():
                return
            await asyncio.to_thread(self._forget, worker)
            is_quick = monotonic() - worker.began < QUICK_S
            deaths = self._deaths[number] = self._deaths.get(number, 0) + 1 if is_quick else 0
            if deaths >= MAX_DEATHS and not any(one.is_serving for one in self._workers.values()):
                why = f"worker {number} {_describe_end(code)}, {deaths} times in a row, and no other worker is running"
                raise WorkersFailedError(f"{why}; see its log", code if code > 0 else 1)
            pause = 0.0 if deaths <= 1 else min(FIRST_PAUSE_S * 2 ** (deaths - 2), MAX_PAUSE_S)
            when = f"in {pause:g} s" if pause else "now"
            log.error("Worker %d (process %d) %s; it is replaced %s", number, worker.pid, _describe_end(code), when)
            await asyncio.sleep(pause)
            if self._stop_wanted.is_set():
                return
            self._launch(number)

    def _forget(self, worker: ServingProcess) -> None:
        """Tell the other workers at once that this worker is gone; otherwise, they notice after some seconds."""
        try:
            forget_replica(self._database, worker.order.place)
        except DatabaseError as error:
            log.warning(
                "Worker %d is gone, but the other workers could not be notified: %s", worker.order.number, error
            )

    # Stopping

    def _stop(self, number: int) -> None:
        if self._stop_wanted.is_set():
            log.info("Stopping at once: %s", signal.Signals(number).name)
            for worker in self._workers.values():
                worker.signal(signal.SIGTERM)
                worker.signal(signal.SIGINT)  # a second signal, of another kind: two of the same kind can arrive as one
        self._stopped_by = self._stopped_by or number
        self._stop_wanted.set()

    def _hang_up(self, had_terminal: bool) -> None:
        if had_terminal and not os.isatty(0):
            self._stop(signal.SIGHUP)
        else:
            self._reload_wanted.set()

    async def _stop_all(self) -> None:
        """Stop workers one after the other, while the rest take the calls. After a while, stop the rest at once."""
        workers = [worker for worker in self._workers.values() if not worker.ended.done()]
        waiting = workers.copy()
        if workers:
            workers[-1].tell_last()
        for listening in self._sockets:
            listening.close()  # else a client that connects after the last worker has stopped would wait in vain
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_TURN_S):
                while waiting:
                    worker = waiting.pop(0)
                    worker.signal(signal.SIGTERM)
                    await asyncio.shield(worker.ended)
                    await asyncio.to_thread(self._forget, worker)
        for worker in waiting:  # the others have had the signal; a second one would stop them at once
            worker.signal(signal.SIGTERM)
        left = [worker.ended for worker in workers if not worker.ended.done()]
        if left:
            await asyncio.wait(left, timeout=STOP_S)

    # Reloading

    async def _keep_reloading(self) -> None:
        """Reload all workers after a signal, and the other workers after one has loaded a new config."""
        while True:
            asked = asyncio.create_task(self._reload_wanted.wait())
            changed = [asyncio.create_task(_changed(worker)) for worker in self._workers.values() if worker.is_serving]
            soon = asyncio.create_task(asyncio.sleep(1))  # look for new workers then
            try:
                await asyncio.wait({asked, soon, *changed}, return_when=asyncio.FIRST_COMPLETED)
                done = [one.result() for one in changed if one.done() and not one.cancelled()]
            finally:
                for task in (asked, soon, *changed):
                    task.cancel()
            if self._stop_wanted.is_set():
                return  # stopping workers need no new config
            if self._reload_wanted.is_set():
                self._reload_wanted.clear()
                await self._reload_in_turn(list(self._workers.values()))
            elif done:
                await self._reload_in_turn([one for one in self._workers.values() if one is not done[0]])

    async def _reload_in_turn(self, workers: list[ServingProcess]) -> None:
        for worker in workers:
            if not worker.is_serving:
                continue  # it reads the config when it starts
            while not worker.reloads.empty():
                worker.reloads.get_nowait()
            worker.signal(signal.SIGHUP)
            try:
                async with asyncio.timeout(RELOAD_S):
                    while not (report := await worker.reloads.get()).was_asked:
                        pass
            except TimeoutError:
                log.error("Worker %d has not reloaded within %g s", worker.order.number, RELOAD_S)
                continue
            if not report.is_new:
                return  # the worker has logged why, and the others would fail too


async def _changed(worker: ServingProcess) -> ServingProcess:
    """Wait until the worker has loaded a new config without a signal."""
    while True:
        report = await worker.reloads.get()
        if report.is_new and not report.was_asked:
            return worker


async def _first_of(*tasks: "asyncio.Task[object]") -> None:
    """Wait for one of the tasks, and raise its exception."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"has ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _private_folder() -> Path:
    """Return a new folder that only this user can enter."""
    return Path(tempfile.mkdtemp(prefix="onetool-"))
