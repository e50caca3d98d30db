"""RequestAudit: what the audit log says of requests: refusals, logins, and what changes or administers something.

Calls are not noted here: the executor sees them all. A route that is to be noted says so in its scope (`audit`).
Somebody who is refused again and again must not fill the disk: beyond a number a second refusals are only counted.
"""

from collections.abc import Callable
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
MOST_IN_WINDOW = 100  # refusals


class RequestAudit:
    """Called for every request, when it has ended."""

    def __init__(self, audit: "AppAudit", login_path: str, clock: Callable[[], float] = monotonic) -> None:
        self._audit = audit
        self._login_path = login_path
        self._clock = clock
        self._window_began = 0.0
        self._in_window = self._uncounted = 0

    def __call__(self, scope: Scope, status: int, seconds: float, route: str | None) -> None:
        """`route` is the path of the route, where there is one: what was asked for beyond it may be anything."""
        if self._audit.log is None:
            return
        kind, what = scope.get(AUDIT) or (None, "")
        is_login = route == self._login_path and scope["method"] in ("POST", "DELETE")
        if status in REFUSALS and self._is_too_many():
            return
        if is_login:
            if status >= 400 or SIGNED_IN in scope:
                self._note(scope, "login", "sign in" if scope["method"] == "POST" else "sign out", status, seconds)
        elif status in REFUSALS:
            self._note(scope, "refusal", what or f"{scope['method'][:10]} {route or '(unknown path)'}", status, seconds)
        elif kind is not None:
            self._note(scope, kind, what, status, seconds)

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

    def _is_too_many(self) -> bool:
        """Whether a refusal is only counted. The first one of the next window says how many there were."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            if self._uncounted:
                what = f"{self._uncounted} more requests refused"
                self._audit.record("refusal", what, principal=NOBODY, outcome="refused", via="http")
            self._window_began, self._in_window, self._uncounted = now, 0, 0
        self._in_window += 1
        if self._in_window > MOST_IN_WINDOW:
            self._uncounted += 1
            return True
        return False
