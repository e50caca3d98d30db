"""`Listener` waits for NOTIFY on a connection of its own, in a thread, and calls those who want to know.

Behind a pooler notifications may get lost. So each is called every second, too, and looks for itself.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, socket
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
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="onetool-listen", daemon=True)
        self._thread.start()

    def add(self, topic: str, call: Callable[[str], None]) -> Callable[[], None]:
        """Returns a function that removes it."""
        key = object()
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
        self._calls = {one: call for one, call in self._calls.items() if one is not key}

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect(autocommit=True) as connection:
                    self._connection = connection
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._tell(None, "")
                    self._wait(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                log.debug("listening: %s: %s", type(error).__name__, error)
                self._closed.wait(EVERY_S)

    def _wait(self, connection: "psycopg.Connection[Any]") -> None:
        while not self._closed.is_set():
            for found in connection.notifies(timeout=EVERY_S, stop_after=1):
                topic, _, detail = found.payload.partition(" ")
                self._tell(topic, detail)
                break
            else:
                self._tell(None, "")

    def _tell(self, topic: str | None, detail: str) -> None:
        for wanted, call in self._calls.values():
            if topic is None or wanted == topic:
                try:
                    call(detail)
                except Exception as error:  # noqa: BLE001 - one who fails must not keep the others from knowing
                    log.warning("a change in the database could not be followed: %s: %s", type(error).__name__, error)
