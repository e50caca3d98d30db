"""`onetool.asgi(app)`: the routes of `onetool serve` as an ASGI app to mount in another web app, below any prefix.

The web app has its own server, lifespan and authentication. This app needs no `lifespan` messages: it starts with the
first request and ends when the `App` is closed. `auth` selects the authentication:

    auth=None            the config's http.token; without one, the client has to be on this machine
    auth="user"          `scope["user"]`, as set by Starlette's AuthenticationMiddleware; no token
    auth=<function>      the function returns the user; no token

Host has to be a name of this machine, one of `http.hosts`, or one of `hosts`; `hosts=["*"]` turns this check off and
needs `auth` or a token. Pages of other origins are always refused, unless they are in `http.origins`, because their
requests have the web app's cookies.
"""

import asyncio
from collections.abc import Callable, Collection
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onetool.app.allow_lists import allow_lists
from onetool.core.principal import Principal
from onetool.http.asgi import BARE_PREFIX, CLOSE, DUPLICATE, HttpError, Message, Receive, Scope, Send, respond
from onetool.interfaces.http.credentials import Credentials
from onetool.interfaces.http.guard import Guard
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules, read_authority
from onetool.interfaces.http.site import build_site, credentials_for
from onetool.interfaces.mcp.http import McpHttpApp

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config.model import HttpConfig
    from onetool.services.access_tokens import TokenView

Authenticate = Callable[[Scope], Any]  # returns the name of the user or None, or an awaitable of it

HERE = BoundAddress("localhost", 0)  # the address of the web app's server is unknown
ANY_HOST = "*"
USER = "user"
WHO = "onetool.user"  # in the scope: the user according to the web app
ADDRESSES = (b"location", b"content-location")  # headers with addresses
NOT_SUPPORTED = 1003  # the close code of a WebSocket


def asgi(
    app: "App",
    *,
    auth: str | Authenticate | None = None,
    hosts: Collection[str] = (),
    menu: str | None = None,
    allowed: Collection[str] | None = None,
) -> "MountedApp":
    """Return MCP, REST and the pages as an ASGI app to mount in a web app: `web.mount("/tools", onetool.asgi(app))`.

    Without `auth`, the rules of `onetool serve` apply: the config's token, or without one only this machine. With
    `auth`, the web app authenticates: "user" uses `scope["user"]`, as set by Starlette's middleware; a function gets
    the scope and returns the user's name, or None for 401. Stored results are private to their user. `hosts` are the
    host names of the web app. Close the App in the web app's lifespan.
    """
    if auth is not None and auth != USER and not callable(auth):
        raise ValueError(f"auth={auth!r}: expected None, {USER!r}, or a function of the scope that names the user")
    if isinstance(hosts, str) or isinstance(allowed, str):
        raise ValueError("hosts and allowed are lists of names")
    if ANY_HOST in hosts and auth is None and not credentials_for(app, None, allowed is not None).needed:
        why = "a page whose name is rebound to this machine could use every tool"
        raise ValueError(f'hosts=["*"] needs auth= here, or http.token in the config: without them {why}')
    return MountedApp(app, user_of if isinstance(auth, str) else auth, hosts, menu, allowed)


def user_of(scope: Scope) -> str | None:
    """Return the user that an authentication middleware, such as Starlette's, put into the scope."""
    user = scope.get("user")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    for name in ("identity", "username", "display_name"):
        try:
            if isinstance(found := getattr(user, name, None), str) and found:
                return found
        except NotImplementedError:  # not all subclasses of Starlette's BaseUser implement its properties
            continue
    raise TypeError(f"{type(user).__name__} has no identity, username or display_name: pass auth=<function> instead")


class MountedRules(AccessRules):
    """The access rules of a mounted app. `asks_us` means that the web app doesn't authenticate."""

    def __init__(self, http: "HttpConfig", hosts: Collection[str], asks_us: bool, credentials: Credentials) -> None:
        super().__init__(http, HERE, credentials)
        self._asks_us = asks_us
        self._any_host = ANY_HOST in hosts
        self._names = self._own | {found.name for host in (*http.hosts, *hosts) if (found := read_authority(host))}

    def check_host(self, host: bytes | None, server: str | None = None) -> None:
        if self._any_host and host is not DUPLICATE:
            return
        named = read_authority((host or b"").decode("latin-1"))
        if host is DUPLICATE or named is None or named.name not in self._names:
            hint = "name the hosts of the web app in asgi(hosts=[…]), or in http.hosts of the config"
            raise HttpError(421, "bad_host", f"{(host or b'')[:100].decode('latin-1')!r} is not expected here; {hint}.")

    def needs_login(self, scope: Scope) -> bool:
        return self._asks_us and super().needs_login(scope)

    async def verify(self, authorization: bytes | None, scope: Scope) -> Principal | None:
        return await super().verify(authorization, scope) if self._asks_us else None

    def identify(self, authorization: bytes | None, scope: Scope, stored: "TokenView | None" = None) -> Principal:
        if not self._asks_us:
            if (name := scope.get(WHO)) is None:
                message = "Not logged in: log in to the web app first."
                raise HttpError(401, "unauthorized", message)
            # Names of tokens have no colon, so no token owns this user's data.
            return self.credentials.capped(Principal(name=name, owner=f"user:{name}", role="edit"))
        return super().identify(authorization, scope, stored)


async def _named_user(who: Authenticate, scope: Scope) -> str | None:
    """Get the user from the web app, whose own error handler receives its exceptions."""
    user = who(scope)
    user = await user if isawaitable(user) else user
    if user is None or (isinstance(user, str) and user):
        return user
    raise TypeError(f"auth of asgi() returned {type(user).__name__}; expected the name of the user, or None")


class MountedApp:
    def __init__(
        self,
        app: "App",
        who: Authenticate | None,
        hosts: Collection[str],
        menu: str | None,
        allowed: Collection[str] | None,
    ) -> None:
        self._app, self._who, self._hosts = app, who, hosts
        lists = allow_lists(app, allowed)
        self._is_limited = lists.is_limited
        self._mcp = McpHttpApp(app, menu=menu, allowed=lists)
        self._site: Guard = build_site(app, HERE, self._mcp, _url, lists)
        self._follow_config()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_closed = False
        app.on_change(self._follow_config)
        app.on_close(self._close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": NOT_SUPPORTED, "reason": "OneTool supports only HTTP"})
            return
        if scope["type"] != "http":
            await self._site(scope, receive, send)
            return
        if self._is_closed:
            refused = HttpError(503, "closed", "OneTool has been closed; the web app is stopping.")
            await respond(send, refused.status, refused.body(), headers=[CLOSE])
            return
        if self._loop is None:  # servers and file watching need the loop of the first request
            self._loop = asyncio.get_running_loop()
            self._mcp.start()
        inner, root = below_prefix(scope)
        inner.pop("principal", None)  # the web app's own key
        if self._who is not None:
            inner[WHO] = await _named_user(self._who, scope)
        await self._site(inner, receive, _with_prefix(send, root) if root else send)

    def _follow_config(self) -> None:
        http = self._app.config.http
        before = self._site.rules.credentials
        credentials = credentials_for(self._app, before.sessions, self._is_limited, before, hosts=self._hosts)
        self._site.rules = MountedRules(http, self._hosts, self._who is None, credentials)
        self._site.max_body = http.max_body_mb * 1024**2

    def _close(self) -> None:
        """End open streams. The App may be closed in any thread, and after the loop has ended."""
        self._is_closed = True
        if self._loop is None or self._loop.is_closed():
            return

        def end() -> None:
            self._ending = asyncio.ensure_future(self._site.stop())

        self._loop.call_soon_threadsafe(end)


def below_prefix(scope: Scope) -> tuple[dict[str, Any], str]:
    """Return the scope with its path below the prefix that the app is mounted at, and that prefix.

    According to ASGI, the path includes the prefix. Behind a proxy that strips a part of the address, it includes only
    the rest of the prefix, below the web app's own root.
    """
    root = scope.get("root_path", "").rstrip("/")
    path, raw = scope["path"], scope.get("raw_path") or quote(scope["path"]).encode()
    is_bare = False
    for prefix in dict.fromkeys((root, root.removeprefix(scope.get("app_root_path", "").rstrip("/")))):
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            is_bare = path == prefix
            after = raw.split(b"/", prefix.count("/") + 1)[prefix.count("/") + 1 :]
            path, raw = path[len(prefix) :] or "/", b"/" + b"".join(after)
            break
    return {**scope, "path": path, "raw_path": raw, "root_path": root, BARE_PREFIX: is_bare}, root


def _with_prefix(send: Send, root: str) -> Send:
    """Return a `send` that adds the prefix to the addresses in headers."""
    before = quote(root).encode()

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, before + value if name in ADDRESSES and value.startswith(b"/") else value)
                for name, value in message.get("headers", ())
            ]
            message = {**message, "headers": headers}
        await send(message)

    return send_on


def _url(scope: Scope) -> str:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    host = host if read_authority(host) else "localhost"
    return f"{scope.get('scheme', 'http')}://{host}{quote(scope.get('root_path', ''))}"
