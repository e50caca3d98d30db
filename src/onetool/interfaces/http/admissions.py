"""Admissions: ends requests that take long when their caller is no longer let in.

A stream may last for hours. Meanwhile its token may be revoked, or expire, or be given other tools; or its session is
ended. Once a second each request that lasts is looked at as if it came now.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from onetool.core.principal import Principal
from onetool.interfaces.asgi import HttpError

SECONDS = 1.0  # between two looks


class Admission:
    """One request. `identify` says who it would come from if it came now."""

    __slots__ = ("_identify", "_principal", "is_over", "since", "task")

    def __init__(
        self, identify: Callable[[], Principal], principal: Principal, task: "asyncio.Task[Any] | None", since: float
    ) -> None:
        self._identify, self._principal = identify, principal
        self.task, self.since = task, since
        self.is_over = False

    def is_valid(self) -> bool:
        """Whether the caller would still be let in, and may what it might when the request began."""
        try:
            return self._identify() == self._principal
        except HttpError:
            return False


class Admissions:
    """The requests under way. It belongs to one event loop."""

    def __init__(self) -> None:
        self._open: set[Admission] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, identify: Callable[[], Principal], principal: Principal) -> Admission:
        loop = asyncio.get_running_loop()
        admission = Admission(identify, principal, asyncio.current_task(), loop.time())
        self._open.add(admission)
        if self._timer is None:
            self._timer = loop.call_later(SECONDS, self._look)
        return admission

    def end(self, admission: Admission) -> None:
        self._open.discard(admission)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SECONDS, self._look) if self._open else None
        latest = loop.time() - SECONDS
        for admission in [one for one in self._open if one.since <= latest]:
            if not admission.is_valid() and admission.task is not None:
                admission.is_over = True
                admission.task.cancel()
