"""The program of a worker, started by the supervisor: `python -m onetool.interfaces.workers.worker DESCRIPTOR`."""

import gc
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import TYPE_CHECKING, NoReturn

import msgspec

from onetool.core.limits import WorkerShare, set_worker_share
from onetool.interfaces.workers import LAST, Reloaded, Report, Serving, WorkerOrder, decode_order

if TYPE_CHECKING:
    from onetool.app import App

LAST_S = 30.0  # for a worker without a supervisor to stop


class SupervisorChannel:
    """The worker's end of the channel."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._lock = Lock()
        self._reader = self._socket.makefile("rb")
        self.is_open = True
        self.is_last = False  # set by a message of the supervisor

    def order(self) -> WorkerOrder:
        return decode_order(self._reader.readline())

    def tell(self, report: Report) -> None:
        """Send a report. Any thread may call this."""
        with self._lock:
            try:
                self._socket.sendall(msgspec.json.encode(report) + b"\n")
            except OSError:
                self.is_open = False

    def watch(self) -> None:
        """Take the messages of the supervisor, and stop this process when the supervisor is gone. Runs in a thread."""
        while line := self._reader.readline():
            self.is_last = line == LAST
        self.is_open = False
        os.kill(os.getpid(), signal.SIGTERM)
        end = Timer(LAST_S, os._exit, (1,))
        end.daemon = True
        end.start()


class ReloadReports:
    """A sender of reports on reloads, whether the supervisor or a client asked for them."""

    def __init__(self, app: "App", channel: SupervisorChannel) -> None:
        self._app, self._channel = app, channel
        self._count = app.reload_count
        self._is_asked = False
        app.on_change(self._changed)

    @contextmanager
    def asked(self) -> Generator[None]:
        """Run a reload that the supervisor has requested with a signal."""
        self._is_asked = True
        try:
            yield
        finally:
            is_new, self._count = self._app.reload_error is None, self._app.reload_count
            self._is_asked = False
            self._channel.tell(Reloaded(is_new, was_asked=True))

    def _changed(self) -> None:
        """Report a full reload, in any thread. Settings are not reported: each worker reads them by itself."""
        if self._app.reload_count != self._count and not self._is_asked:
            self._count = self._app.reload_count
            self._channel.tell(Reloaded(is_new=True, was_asked=False))


def main() -> None:
    """Run a worker, and exit with the exit codes of the command line."""
    gc.set_threshold(150_000)  # as in __main__
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server can handle it
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor says when to stop
    channel = SupervisorChannel(int(sys.argv[1]))
    order = channel.order()
    Thread(target=channel.watch, name="onetool-supervisor", daemon=True).start()
    set_worker_share(WorkerShare(order.number, order.count, order.run))
    from onetool.interfaces.cli import leave_after

    try:
        leave_after(lambda: _serve(order, channel))
    finally:
        if not channel.is_open:  # the supervisor can't do it any more
            shutil.rmtree(Path(order.database).parent, ignore_errors=True)
        gc.freeze()


def _serve(order: WorkerOrder, channel: SupervisorChannel) -> None:
    from onetool.app import App
    from onetool.cluster import ClusterSettings
    from onetool.database.sqlite import SqliteDatabase
    from onetool.interfaces.cli.output import claim_stdout
    from onetool.interfaces.http.listen import BoundAddress
    from onetool.interfaces.http.serve import serve_app
    from onetool.services.logs import add_to_log_lines, set_up_logging
    from onetool.sources.mcp_servers.command_line import server_of

    set_up_logging(order.level)
    add_to_log_lines(worker=order.number)
    claim_stdout()
    logging.getLogger("onetool.trust").disabled = True  # the supervisor has reported it
    sockets = tuple(socket.socket(fileno=descriptor) for descriptor in order.sockets)
    for one in sockets:
        one.set_inheritable(False)
    address = BoundAddress(order.host, order.port, order.addresses, sockets)
    database = SqliteDatabase(Path(order.database))
    cluster = ClusterSettings(order.place, order.key, database, lambda: channel.is_last, is_one_machine=True)
    servers = {} if order.server is None else server_of(order.server, order.name)
    with App.open(order.config, watch=order.watch, servers=servers) as app:
        reports = ReloadReports(app, channel)
        serve_app(
            app,
            address,
            menu=order.menu,
            allowed=order.allowed,
            print_line=lambda greeting: channel.tell(Serving(greeting)),
            cluster=cluster,
            on_reload=reports.asked,
            drain_s=order.drain_s,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _exit)  # while the app closes: the server has removed its own handlers
    database.close()


def _exit(_signal: int, _frame: object) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
