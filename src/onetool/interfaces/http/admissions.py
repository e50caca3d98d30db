"""`Admissions` ends requests whose caller loses access.

A stream may last for hours, while its token is revoked, expires or gets other tools, or its session ends. Long requests
are checked every 0.4 s as if they came now, and those that would be refused are cancelled. They have CLEANUP_S to end.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec

from onetool.core.principal import Principal, current_address, current_principal, is_admitted
from onetool.http.asgi import HttpError, Scope

CHECK_EVERY_S = 0.4  # between two checks: the calls of a revoked token end within half a second
CLEANUP_S = 5.0  # after which a request that goes on is cancelled again


class Admission(msgspec.Struct, eq=False):
    """A running request, checked from `since` on. `identify` returns who the caller would be if it came now."""

    identify: Callable[[], Principal]
    principal: Principal
    task: "asyncio.Task[Any] | None"
    since: float
    is_over: bool = False

    def is_valid(self) -> bool:
        """Return whether the caller still has access, with the rights from the beginning of the request."""
        try:
            return self.identify() == self.principal
        except HttpError:
            return False


current_admission: ContextVar[Admission | None] = ContextVar("current_admission", default=None)


class Admissions:
    """The running requests. Belongs to one event loop."""

    def __init__(self) -> None:
        self._open: set[Admission] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, scope: Scope, principal: Principal, address: str, identify: Callable[[], Principal]) -> None:
        """Set the caller of a request, and check it until the end with `identify`."""
        loop = asyncio.get_running_loop()
        admission = Admission(identify, principal, asyncio.current_task(loop), loop.time())
        scope["principal"], scope["admission"] = principal, admission
        current_principal.set(principal)
        current_address.set(address)
        is_admitted.set(admission.is_valid)
        current_admission.set(admission)
        self._open.add(admission)
        if self._timer is None:
            self._timer = loop.call_later(CHECK_EVERY_S, self._look)

    def end(self, admission: Admission) -> None:
        self._open.discard(admission)
        # The task's context refers to this object. This breaks the reference cycle, so that the memory of the request
        # is free at once and still in the processor's caches for the next requests.
        admission.task = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CHECK_EVERY_S, self._look) if self._open else None
        latest = loop.time() - CHECK_EVERY_S
        for admission in [one for one in self._open if one.since <= latest]:
            if not admission.is_valid() and admission.task is not None:
                admission.is_over, admission.since = True, loop.time() + CLEANUP_S
                admission.task.cancel()
