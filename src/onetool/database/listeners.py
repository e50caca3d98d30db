"""`Listeners`: the functions that a database calls after changes. Each driver notices changes in its own way."""

import logging
import threading
from collections.abc import Callable

from onetool.database.connection import Forget

log = logging.getLogger("onetool.database")


class Listeners:
    """Functions by topic. Thread-safe."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, Callable[[str], None]]] = {}
        self._lock = threading.Lock()

    def add(self, topic: str, call: Callable[[str], None]) -> Forget:
        """Add a function. Return a function that removes it."""
        key = object()
        with self._lock:
            self._calls = {**self._calls, key: (topic, call)}

        def forget() -> None:
            with self._lock:
                self._calls = {other: entry for other, entry in self._calls.items() if other is not key}

        return forget

    def tell(self, topic: str | None, detail: str = "") -> None:
        """Call the functions of a topic, or all of them. Continue if one fails."""
        for own, call in self._calls.values():
            if topic is None or own == topic:
                try:
                    call(detail)
                except Exception as error:  # noqa: BLE001 - it may be any code
                    log.warning("failed to handle a change in the database: %s: %s", type(error).__name__, error)
