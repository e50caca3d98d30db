"""`Listener` waits for NOTIFY on a connection of its own, in a thread, and calls those who want to know.

Behind a pooler notifications may get lost. So each is called every second, too, and looks for itself.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, socket
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("onetool.database")

CHANNEL = "onetool"
EVERY_S = 1.0


class Listener:
    def __init__(self, connect: "Callable[..., psycopg.Connection[Any]]") -> None:
        self._connect = connect
        self._calls: dict[object, tuple[str, Callable[[str], None]]] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._is_lost = False
        self._thread = threading.Thread(target=self._keep, name="onetool-listen", daemon=True)
        self._thread.start()

    def add(self, topic: str, call: Callable[[str], None]) -> Callable[[], None]:
        """Returns a function that removes it."""
        key = object()
        with self._changing:
            self._calls = {**self._calls, key: (topic, call)}
        return lambda: self._remove(key)

    def close(self) -> None:
        self._closed.set()
        if (connection := self._connection) is not None:
            # It waits for what comes: the end of what it reads from wakes it up.
            with suppress(Exception), socket(fileno=os.dup(connection.fileno())) as reading:
                reading.shutdown(SHUT_RDWR)
        self._thread.join(2 * EVERY_S)

    def _remove(self, key: object) -> None:
        with self._changing:
            self._calls = {one: call for one, call in self._calls.items() if one is not key}

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect(autocommit=True) as connection:
                    self._connection = connection
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._is_lost = False
                    self._tell(None, "")
                    self._wait(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                if not (self._is_lost or self._closed.is_set()):
                    log.warning("changes in the database are looked for each second: %s", error)
                self._is_lost = True
                self._tell(None, "")
                self._closed.wait(EVERY_S)

    def _wait(self, connection: "psycopg.Connection[Any]") -> None:
        look_at = monotonic() + EVERY_S
        while not self._closed.is_set():
            # All that has come: what is not taken of a packet is lost.
            for found in connection.notifies(timeout=max(0.0, look_at - monotonic()), stop_after=1):
                topic, _, detail = found.payload.partition(" ")
                self._tell(topic, detail)
            if monotonic() >= look_at:
                look_at = monotonic() + EVERY_S
                self._tell(None, "")

    def _tell(self, topic: str | None, detail: str) -> None:
        for wanted, call in self._calls.values():
            if topic is None or wanted == topic:
                try:
                    call(detail)
                except Exception as error:  # noqa: BLE001 - one who fails must not keep the others from knowing
                    log.warning("a change in the database could not be followed: %s: %s", type(error).__name__, error)
