"""`LoginApp` is the route /login: users sign in with a token and get a session for their browser.

    GET       whether a token is needed, whether the sent session (or token) is valid, and whose it is
    POST      {"token": …} -> a session, which is sent as `Authorization: Bearer …` instead of the token
              {"key": …} -> a session of the owner; the key is from a link of `onetool page` and works once
    DELETE    ends the sent session

There is no cookie, so browsers add no credentials that another page could misuse.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onetool.core.principal import OWNER, Principal, Rate
from onetool.core.text import utc_text
from onetool.database import DatabaseError
from onetool.http.asgi import HEAD, HttpError, Receive, Scope, Send, read_body, respond
from onetool.http.definition import TOOL_HEADER
from onetool.interfaces.http.credentials import CHALLENGE, bearer
from onetool.interfaces.http.login_sessions import LoginSession, LoginSessions
from onetool.interfaces.http.request_log import SIGNED_IN
from onetool.interfaces.http.rules import AccessRules
from onetool.services.request_rates import RequestRates, SharedRates

if TYPE_CHECKING:
    from onetool.database.shared_rates import SharedWindows

LOGIN_PATH = "/login"
LOGIN_METHODS = ("GET", "HEAD", "POST", "DELETE")
SIGN_OUTS = Rate(100, 600)  # of one token; bounds the list of ended sessions
MAX_BODY = 4096  # bytes: anybody may send a body
NO_STORE = (b"cache-control", b"no-store")
BAD_BODY = 'The body must be {"token": "…"}, or {"key": "…"} with the key of a link, in JSON.'
UNKNOWN = "Invalid token. Use http.token of the server's config, or a token created with `onetool tokens add`."
DEAD_LINK = "This link was used, has expired, or is for another server. `onetool page` prints a new one."


class LoginRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /login."""

    token: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.token is None) == (self.key is None):
            raise ValueError("expected either a token or a key")

    def __repr__(self) -> str:
        return "LoginRequest(***)"


class LoginApp:
    """The ASGI app. `rules` returns the current access rules."""

    def __init__(
        self, rules: Callable[[], AccessRules], sessions: LoginSessions, windows: "SharedWindows | None" = None
    ) -> None:
        """Serve the route. `windows` counts sign-outs of all processes; None means only those of this one."""
        self._rules = rules
        self._sessions = sessions
        self._signed_out = RequestRates() if windows is None else SharedRates(windows, "sign-outs")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rules = self._rules()
        head = scope[HEAD]
        if scope["method"] in ("GET", "HEAD"):
            await _answer(send, await _status(rules, head.get(b"authorization"), scope))
            return
        if TOOL_HEADER in head:
            raise HttpError(403, "not_for_tools", "Tools and MCP servers may not sign in, only people.")
        if scope["method"] == "DELETE":
            await self._sign_out(rules, head.get(b"authorization"), scope, send)
            return
        body = await read_body(receive)
        if body is not None:
            await _answer(send, await self._sign_in(rules, body, scope))

    async def _sign_in(self, rules: AccessRules, body: bytes, scope: Scope) -> dict[str, Any]:
        given = None
        with suppress(msgspec.MsgspecError, RecursionError):
            given = msgspec.json.decode(body, type=LoginRequest)
        if given is not None and given.key is not None:
            return await self._open_link(rules, given.key.strip(), scope)
        if not rules.needs_login(scope):
            return {"session": None, "needed": False}
        if given is None or given.token is None:
            raise HttpError(400, "bad_request", BAD_BODY, [NO_STORE])
        token = given.token.strip().encode()
        if (principal := rules.credentials.find_token(token)) is None:
            rules.credentials.require_current()
            raise HttpError(401, "unauthorized", UNKNOWN, [CHALLENGE, NO_STORE])
        scope[SIGNED_IN] = principal
        text, session = await _with_state("Signing in", rules.credentials.start_session, token, principal)
        return {"session": text, "expiresAt": utc_text(session.expires), **_who(principal)}

    async def _open_link(self, rules: AccessRules, key: str, scope: Scope) -> dict[str, Any]:
        """Start a session of the owner."""
        started = await _with_state("Signing in", rules.credentials.open_link, key)
        if started is None:
            raise HttpError(401, "unauthorized", DEAD_LINK, [CHALLENGE, NO_STORE])
        principal = scope[SIGNED_IN] = rules.credentials.capped(OWNER)
        text, session = started
        return {"session": text, "expiresAt": utc_text(session.expires), **_who(principal)}

    async def _sign_out(self, rules: AccessRules, authorization: bytes | None, scope: Scope, send: Send) -> None:
        session = _session(rules, authorization)
        if session is None and rules.needs_login(scope):
            await rules.authenticate(authorization, scope)  # raises 401, unless it is a token
            message = "This is a token, not a session, so it can't be signed out. Admins can revoke tokens."
            raise HttpError(400, "no_session", message, [NO_STORE])
        if session is not None:
            principal = scope[SIGNED_IN] = rules.identify(authorization, scope)
            if (wait := await self._signed_out.check_async(replace(principal, rate=SIGN_OUTS))) is not None:
                message = f"{principal.name} has signed out too often; try again in {math.ceil(wait)} s."
                raise HttpError(429, "too_many", message, [(b"retry-after", b"%d" % math.ceil(wait)), NO_STORE])
            await _with_state("Signing out", self._sessions.end, session)
        await send({"type": "http.response.start", "status": 204, "headers": [NO_STORE]})
        await send({"type": "http.response.body", "body": b""})


async def _with_state(what: str, work: Callable[..., Any], *args: Any) -> Any:
    """Run work that reads or changes the stored state, in a thread. Raises HttpError (503)."""
    try:
        return await asyncio.to_thread(work, *args)
    except (DatabaseError, OSError) as error:  # a TimeoutError, too
        message = f"{what} is not possible now: {error}. `onetool check` says more."
        raise HttpError(503, "database_away", message, [(b"retry-after", b"1"), NO_STORE]) from None


async def _status(rules: AccessRules, authorization: bytes | None, scope: Scope) -> dict[str, Any]:
    needed = rules.needs_login(scope)
    try:
        principal = await rules.authenticate(authorization, scope)
    except HttpError:
        return {"needed": needed, "signedIn": False}
    session = _session(rules, authorization)
    until = {} if session is None else {"expiresAt": utc_text(session.expires)}
    signed_in = {"signedIn": True} if needed else {}
    return {"needed": needed, **signed_in, **until, **_who(principal)}


def _who(principal: Principal) -> dict[str, Any]:
    """Return the caller and its rights."""
    return {"name": principal.name, "role": principal.role, "tools": principal.tools, "isCapped": principal.is_capped}


def _session(rules: AccessRules, authorization: bytes | None) -> LoginSession | None:
    shown = bearer(authorization)
    return None if shown is None else rules.credentials.session(shown)


async def _answer(send: Send, data: dict[str, Any]) -> None:
    await respond(send, 200, msgspec.json.encode(data), headers=[NO_STORE])
