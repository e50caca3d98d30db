"""A request that lasts, read by a thread: a stream of events, or a call that takes its time."""

from contextlib import suppress
from http.client import HTTPException
from threading import Thread

from interfaces.http.matrix import bearer
from interfaces.mcp.servers import Exchange


class LastingRequest:
    """`exchange` has what has come so far."""

    def __init__(self, server, token, method, path, body=None):
        headers = [*bearer(token), ("Accept", "text/event-stream"), ("Content-Type", "application/json")]
        self.exchange = Exchange(server.port, method, path, headers, body)
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        with suppress(OSError, HTTPException, ValueError):
            self.exchange.read()

    @property
    def is_over(self):
        return not self._thread.is_alive()
