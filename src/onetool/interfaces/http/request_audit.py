"""RequestAudit: what the audit log says of requests: refusals, logins, and what changes or administers something.

Calls are not noted here: the executor sees them all. A route that is to be noted says so in its scope (`audit`).
Somebody who is refused again and again must not fill the disk: beyond a number a second refusals are only counted.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING

from onetool.core.principal import Principal
from onetool.interfaces.asgi import AUDIT, Scope

if TYPE_CHECKING:
    from onetool.app.audit import AppAudit
    from onetool.services.audit import AuditKind

REFUSALS = (401, 403, 421, 429)
NOBODY = Principal(name="(nobody)")  # no token has such a name
SIGNED_IN = "onetool.signed_in"  # in the scope: who has signed in, or out
WINDOW_S = 10.0
MOST_IN_WINDOW = 100  # refusals of one kind


class RequestAudit:
    """Called for every request, when it has ended."""

    def __init__(self, audit: "AppAudit", login_path: str, clock: Callable[[], float] = monotonic) -> None:
        self._audit = audit
        self._login_path = login_path
        # Each is counted for itself, so that who knocks without a token hides nothing else.
        self._logins = RefusalCount(audit, "login", "logins refused", clock)
        self._nobody = RefusalCount(audit, "refusal", "requests refused", clock)
        self._known = RefusalCount(audit, "refusal", "requests of known callers refused", clock)
        audit.before_close(self.flush)

    def __call__(self, scope: Scope, status: int, seconds: float, route: str | None) -> None:
        """`route` is the path of the route, where there is one: what was asked for beyond it may be anything."""
        if self._audit.log is None:
            return
        kind, what = scope.get(AUDIT) or (None, "")
        if route == self._login_path and scope["method"] in ("POST", "DELETE"):
            if SIGNED_IN in scope or (status >= 400 and self._logins.is_noted()):
                self._note(scope, "login", "sign in" if scope["method"] == "POST" else "sign out", status, seconds)
        elif status in REFUSALS:
            if (self._known if "principal" in scope else self._nobody).is_noted():
                what = what or f"{scope['method'][:10]} {route or '(unknown path)'}"
                self._note(scope, "refusal", what, status, seconds)
        elif kind is not None:
            self._note(scope, kind, what, status, seconds)

    def flush(self) -> None:
        """Note how many were only counted until now."""
        for one in (self._logins, self._nobody, self._known):
            one.flush()

    def _note(self, scope: Scope, kind: "AuditKind", what: str, status: int, seconds: float) -> None:
        code = scope["log"].get("error") or "error"
        client = scope.get("client")
        self._audit.record(
            kind,
            what,
            principal=scope.get(SIGNED_IN) or scope.get("principal") or NOBODY,
            address=str(client[0]) if client else "",
            outcome="ok" if status < 400 else code,
            status=status,
            ms=seconds * 1000,
            via="http",
        )


class RefusalCount:
    """Refusals of one kind. Those beyond a number in a window are counted, and one line says how many they were.

    The line is written when the window has ended, whether another request comes or not, and when the log is closed.
    """

    def __init__(self, audit: "AppAudit", kind: "AuditKind", what: str, clock: Callable[[], float]) -> None:
        self._audit = audit
        self._kind: AuditKind = kind
        self._what = what
        self._clock = clock
        self._lock = Lock()  # the timer has a thread of its own
        self._window_began = 0.0
        self._in_window = self._left_out = 0
        self._timer: Timer | None = None

    def is_noted(self) -> bool:
        """Whether there is a line for one more. Else it is counted."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            self.flush()
            self._window_began, self._in_window = now, 0
        self._in_window += 1
        if self._in_window <= MOST_IN_WINDOW:
            return True
        with self._lock:
            self._left_out += 1
            if self._timer is None:
                timer = Timer(self._window_began + WINDOW_S - now, self.flush)
                timer.daemon = True
                with suppress(RuntimeError):  # no thread is left: the next window says it
                    timer.start()
                    self._timer = timer
        return False

    def flush(self) -> None:
        with self._lock:
            count, self._left_out = self._left_out, 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if count:
            what = f"{count} more {self._what}"
            self._audit.record(self._kind, what, principal=NOBODY, address="", outcome="refused", via="http")
