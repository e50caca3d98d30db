"""What is written down of requests: the access log, and what the audit log says of them.

The access log has one line per request, on the logger `onetool.access`, without bodies, tokens and queries. The thread
of the app's `Recorder` makes and writes the lines. Clients choose parts of their content, so it is escaped.

The audit log has refusals, logins, what changes or administers something, and what one replica forwards to another:
both note that, with the same id. Calls are not noted here: the executor sees them all. A route that is to be noted says
so in its scope (`audit`). Clients that are refused again and again must not fill the disk: beyond a number a second,
refusals are only counted.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from onetool.core.context import RequestEvent
from onetool.core.limits import worker_share
from onetool.core.principal import Principal
from onetool.core.text import utc_text_ms
from onetool.core.trace import current_trace
from onetool.http.asgi import AUDIT, CLUSTER_PATH, FORWARD_ID, FORWARDED, UNLOGGED, HttpError, Scope
from onetool.services.audit import AuditUnavailableError
from onetool.services.event_queue import Recorder
from onetool.services.logs import NonBlockingHandler

if TYPE_CHECKING:
    from onetool.app.audit import AppAudit
    from onetool.services.audit import AuditKind

log = logging.getLogger("onetool.access")
root_log = logging.getLogger("onetool")

MAX_TEXT = 200  # characters of a text from outside
CLIENT_CLOSED_REQUEST = 499  # the client left before there was an answer
_encode = msgspec.json.Encoder(enc_hook=str).encode


class LoggedRequest(RequestEvent, frozen=True, kw_only=True):
    """A request that has ended, with what its line in the access log says beside."""

    path: str
    size: int  # of the response, in bytes
    client: str | None
    more: Mapping[str, Any]  # fields that the route adds
    redact: Callable[[str], str] | None = None  # for the path, unless it is that of a route

    def fields(self) -> dict[str, Any]:
        """Return what the line says."""
        fields: dict[str, Any] = {
            "method": self.method,
            "path": clean(self.path if self.redact is None else _masked(self.path, self.redact)),
            "status": self.status,
            "duration_ms": round(self.seconds * 1000, 2),
            "bytes": self.size,
            "client": self.client,
        }
        for key, value in self.more.items():
            if key not in fields:
                is_odd = isinstance(value, str) and (len(value) > MAX_TEXT or not value.isprintable())
                fields[key] = clean(value) if is_odd else value
        return fields


def enable_access_log(on: bool) -> None:
    log.setLevel(logging.INFO if on else logging.CRITICAL)


def log_request(
    scope: Scope,
    status: int,
    seconds: float,
    size: int,
    redact: Callable[[str], str],
    route: str = "",
    recorder: Recorder | None = None,
) -> None:
    """Log one request. `scope["log"]` holds the fields that its route adds.

    `route` is the path of that route. It is ours, and says no secret; what stands behind it may. The observers of a
    `recorder` see the request, too.
    """
    if UNLOGGED in scope["log"]:
        return
    client, path = scope.get("client"), scope.get("raw_path")
    path = scope["path"] if path is None else path.decode("latin-1")
    request = LoggedRequest(
        method=scope["method"],
        route=route,
        status=status,
        seconds=seconds,
        mcp=scope["log"].get("mcp", ""),
        trace=current_trace.get(),
        path=path,
        size=size,
        client=client[0] if client else None,
        more=scope["log"],
        redact=None if path == route else redact,
    )
    write_entry(request, recorder)


def write_entry(request: LoggedRequest, recorder: Recorder | None = None) -> None:
    is_logged, handler = log.isEnabledFor(logging.INFO), None
    for one in root_log.handlers if is_logged else ():
        if isinstance(one, AccessHandler):
            handler = one
    if (recorder := recorder or (handler and handler.recorder)) is not None:
        recorder.put((_record, (request, recorder, handler)), log.name, len(request.path))
    if handler is not None or not is_logged:
        return
    fields = request.fields()
    message = f"{fields['method']} {fields['path']} {fields['status']} {fields['duration_ms']} ms"
    log.info(message, extra={"fields": fields})


def _record(request: LoggedRequest, recorder: Recorder, handler: "AccessHandler | None") -> None:
    """Write the line, and show the request to the observers. Runs in the recorder's thread."""
    if handler is not None:
        handler.add(request)
    recorder.observe(request)


def _masked(path: str, redact: Callable[[str], str]) -> str:
    """Mask secrets in a path. If one is written with escapes, the path is shown without them."""
    if "%" in path and redact(plain := unquote(path)) != plain:
        return redact(plain)
    return redact(path)


def clean(text: str) -> str:
    """Return text of a client shortened, on one line and without control characters."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class AccessHandler(NonBlockingHandler):
    """A handler for JSON logs that takes requests without a LogRecord: the recorder's thread makes and writes lines."""

    def __init__(
        self,
        fd: int,
        formatter: logging.Formatter | None = None,
        recorder: Recorder | None = None,
        replica: str | None = None,
    ) -> None:
        super().__init__(fd, formatter)
        self.recorder = recorder or Recorder()
        self.recorder.writers.append(self._write_lines)
        share = worker_share()
        self._common: dict[str, Any] = {"worker": share.number} if share.workers > 1 else {}
        self._common |= {"replica": replica} if replica else {}

    def add(self, request: LoggedRequest) -> None:
        fields = request.fields()
        entry = {
            "time": f"{utc_text_ms(request.ended_at)[:-1]}+00:00",
            "level": "info",
            "logger": log.name,
            "message": f"{fields['method']} {fields['path']}",
            **fields,
            **self._common,
        }
        try:
            line = _encode(entry)
            # In ASCII all that could end a line is escaped. Beyond it U+2028 and others are not, and end one for some
            # readers.
            if not line.isascii() and not line.decode().isprintable():
                line = json.dumps(entry, default=str).encode()
        except (TypeError, ValueError, OverflowError):  # a lone surrogate, a number without end
            line = json.dumps(entry, default=str).encode()
        self._lines.append(line + b"\n")

    def _write_lines(self, is_last: bool) -> None:
        if self._lines:
            self.flush()


# What the audit log says of requests


REFUSALS = (401, 403, 421, 429)
NOBODY = Principal(name="(nobody)")  # no token has such a name
SIGNED_IN = "onetool.signed_in"  # in the scope: who has signed in, or out
WINDOW_S = 10.0
MAX_IN_WINDOW = 100  # refusals of one kind


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
        """Note the request if it is one to note. `route` is the path of its route: the rest may be anything."""
        if self._audit.log is None:
            return
        kind, what = scope.get(AUDIT) or (None, "")
        is_forwarded = FORWARD_ID in scope and UNLOGGED not in scope["log"]
        if route == self._login_path and scope["method"] in ("POST", "DELETE"):
            if SIGNED_IN in scope or (status >= 400 and self._logins.is_noted()):
                self._note(scope, "login", "sign in" if scope["method"] == "POST" else "sign out", status, seconds)
        elif status in REFUSALS:
            if is_forwarded or (self._known if "principal" in scope else self._nobody).is_noted():
                self._note(scope, "refusal", what or _request_name(scope, route), status, seconds)
        elif kind is not None:
            self._note(scope, kind, what, status, seconds)
        elif is_forwarded:
            self._note(scope, "call", _request_name(scope, route), status, seconds)

    async def begin_forwarded(self, scope: Scope, route: str) -> None:
        """Note that a request of another replica begins, where the log is required. Raises HttpError (503)."""
        if UNLOGGED in scope["log"]:
            return
        try:
            await self._audit.begin("call", _request_name(scope, route), **_origin(scope))
        except AuditUnavailableError as error:
            raise HttpError(503, "audit_unavailable", f"Nothing was done: {error}.") from None

    def flush(self) -> None:
        """Note how many were only counted until now."""
        for one in (self._logins, self._nobody, self._known):
            one.flush()

    def _note(self, scope: Scope, kind: "AuditKind", what: str, status: int, seconds: float) -> None:
        code = scope["log"].get("error") or "error"
        self._audit.record(
            kind,
            what,
            principal=scope.get(SIGNED_IN) or scope.get("principal") or NOBODY,
            outcome="ok" if status < 400 else code,
            status=status,
            ms=seconds * 1000,
            **_origin(scope),
        )


def _request_name(scope: Scope, route: str | None) -> str:
    """Return the method and the route. A path that a client chose is not repeated."""
    path = scope["path"] if FORWARDED in scope and route == CLUSTER_PATH else route or "(unknown path)"
    return f"{scope['method'][:10]} {path}"


def _origin(scope: Scope) -> dict[str, str]:
    """Return the fields that say where a request comes from, and its id if one replica forwarded it to another."""
    if (told := scope.get(FORWARDED)) is not None:
        return {"address": told.address, "via": "replica", "client": told.sender, "id": scope[FORWARD_ID]}
    client = scope.get("client")
    return {"address": str(client[0]) if client else "", "via": "http", "id": scope.get(FORWARD_ID, "")}


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
        """Return whether there is a line for one more refusal. If not, it is counted."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            self.flush()
            self._window_began, self._in_window = now, 0
        self._in_window += 1
        if self._in_window <= MAX_IN_WINDOW:
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
            counted = {"principal": NOBODY, "address": "", "trace": None}  # of many requests
            self._audit.record(self._kind, what, outcome="refused", via="http", **counted)
