"""A login in the browser, for HTTP tools and MCP servers alike: the way there and back, and a store for its tokens.

    async with browser_login(name, port, say) as callback: answer = await callback(page)

`LoginCallback` is a listener on this machine that takes the answer of the authorization server. It takes one answer,
and only one with the `state` of the login under way: any page in the browser can send requests to it.

`LoginStore` keeps the tokens: one document each, private or encrypted. Tokens belong to a url and to a client: with
another one they are not used. A refresh token may be good for one use only, so whoever uses it holds the lock, and
first looks whether another process has already used it.
"""

import asyncio
import html
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from secrets import compare_digest
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from onetool.core.system import has_window
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.documents import Documents, HeldDocument, StoredDocument, Version
from onetool.http.errors import AuthError, in_short

T = TypeVar("T")

LOGIN_S = 300.0  # for a person to log in
MAX_WAIT_S = 60.0  # for who renews the same tokens; longer than one such request may take
KEEPING_S = 20.0  # for which new tokens are offered to a database that is away: there are no others
PAUSE_S = 0.5  # between two such offers
MAX_QUOTED = 300  # characters of what an authorization server says, in our messages

Say = Callable[[str], None]

CALLBACK_HOST = "127.0.0.1"
CALLBACK_PATH = "/callback"
REQUEST_S = 5.0  # for a request to arrive as a whole
MAX_REQUEST = 16 * 1024  # bytes of a request

CallbackQuery = dict[str, str]
"""What the authorization server says by the browser: `code`, `state`, `iss`, or `error`, `error_description`."""

CALLBACK_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>body{{font:1.1rem/1.6 system-ui,sans-serif;max-width:30rem;
margin:20vh auto;padding:0 1rem;color:#222;background:#fff}}@media(prefers-color-scheme:dark){{body{{color:#ddd;
background:#1b1b1b}}}}</style><h1>{title}</h1><p>{text}</p></html>"""


class StoredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept. The mappings are the protocol's own: see RFC 6749, 7591, 8414 and 9728."""

    url: str
    key: str  # whose tokens these are
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None  # what `expires_in` meant when it came
    authorization_server: dict[str, Any] | None = None  # where to refresh
    resource: dict[str, Any] | None = None
    wanted: str | None = None  # scopes that the server asked for since: the next login asks for them, too
    origins: tuple[str, ...] = ()  # of HTTP tools: where the tokens may be sent to, and nowhere else

    def __repr__(self) -> str:
        return "StoredLogin(***)"


class LoginStore:
    """One login, as seen by one url and one client."""

    def __init__(self, logins: Documents, name: str, url: str, key: str) -> None:
        self.name = name
        self.empty = StoredLogin(url=url, key=key)
        self.unkept = f"the login can't be kept in {logins.describe(name)}"
        self._logins = logins

    def version(self) -> Version:
        """Return what differs after any change. Never waits."""
        return self._logins.version(self.name)

    def load(self) -> tuple[Version, StoredLogin]:
        """Return what is kept. A damaged document counts as empty: a new login mends it.

        Raises AuthError if the database can't be read, or the login was encrypted with another key.
        """
        with _as_auth_error("the login can't be read"):
            return self.decoded(self._logins.load(self.name))

    def decoded(self, document: StoredDocument) -> tuple[Version, StoredLogin]:
        login = self.empty
        with suppress(msgspec.MsgspecError, RecursionError):
            login = login if document.body is None else msgspec.json.decode(document.body, type=StoredLogin)
        is_ours = (login.url, login.key) == (self.empty.url, self.empty.key)
        return document.version, login if is_ours else self.empty

    @asynccontextmanager
    async def locked(self) -> "AsyncIterator[HeldLogin]":
        """Hold the lock: one at a time, also among processes and replicas. Others of this process need not wait."""
        held = self._logins.locked_async(self.name, MAX_WAIT_S)
        with _as_auth_error(self.unkept):
            document = await held.__aenter__()
        try:
            yield HeldLogin(self, document)
        finally:
            await held.__aexit__(None, None, None)


class HeldLogin:
    def __init__(self, store: LoginStore, held: HeldDocument) -> None:
        self._store, self._held = store, held

    async def load(self) -> tuple[Version, StoredLogin]:
        """Return what is kept now: another process may have changed it before we had the lock."""
        with _as_auth_error("the login can't be read"):
            return self._store.decoded(await _to_the_end(self._held.load))

    async def check(self) -> None:
        """Raise AuthError if the lock was lost."""
        with _as_auth_error("the login can't be refreshed now"):
            await _to_the_end(self._held.check)

    async def clear(self, login: StoredLogin) -> Version:
        """Keep that its tokens are over; not if the lock was lost: others may have got new ones."""
        await self.check()
        return await self.save(login)

    async def save(self, login: StoredLogin) -> Version:
        """Keep new tokens, also if the lock was lost meanwhile: those of before may be good no more."""
        return await _to_the_end(self._save, login)

    def _save(self, login: StoredLogin) -> Version:
        body, until = msgspec.json.format(msgspec.json.encode(login), indent=1), time.monotonic() + KEEPING_S
        with _as_auth_error(self._store.unkept):
            while True:
                try:
                    return self._held.write(body)
                except (DatabaseAwayError, ChangeUnknownError):
                    if time.monotonic() >= until:
                        raise
                    time.sleep(PAUSE_S)


async def _to_the_end(work: Callable[..., T], *args: Any) -> T:
    """Run the work in a thread. Callers that are cancelled wait for its end: they must hold the lock until then."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # marks it as retrieved
        raise


def forget(logins: Documents, name: str) -> bool:
    """Remove what is kept, for whichever url. Return whether there was anything."""
    with _as_auth_error(f"the login can't be removed from {logins.describe(name)}"):
        if logins.version(name) is None:
            return False
        with logins.locked(name, MAX_WAIT_S) as held:
            return held.delete()


@contextmanager
def _as_auth_error(what: str) -> Iterator[None]:
    """Raise AuthError for what a database, or its lock, raises."""
    try:
        yield
    except TimeoutError:
        why = f"another process holds it for more than {MAX_WAIT_S:.0f} s; end it, and try again"
        raise AuthError(f"{what}: {why}") from None
    except (OSError, DatabaseError) as error:
        raise AuthError(f"{what}: {getattr(error, 'strerror', None) or error}") from None


@asynccontextmanager
async def browser_login(
    name: str, port: int | None, say: Say, browse: Say | None = None, seconds: float = LOGIN_S
) -> "AsyncIterator[LoginCallback]":
    """Listen for the end of a login to `name`, for so long. Whatever ends it, also Ctrl-C: nothing listens any more."""

    def show(page: str, note: str) -> None:
        say(f"To log in to {name}, open this page in a browser on this machine:\n\n  {page}\n")
        if note:
            say(f"{note}\n")
        (browse or open_browser)(page)

    callback = LoginCallback(name, show)
    try:
        server = await asyncio.start_server(callback.serve, CALLBACK_HOST, port or 0, limit=MAX_REQUEST)
    except OSError as error:
        place = f"{CALLBACK_HOST}:{port or 'any port'}"
        raise AuthError(f"can't listen at {place} for the end of the login: {error.strerror}") from None
    callback.redirect_uri = f"http://{CALLBACK_HOST}:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
    try:
        async with asyncio.timeout(seconds):
            yield callback
    except TimeoutError:
        raise AuthError(f"nobody has finished the login to {name} within {seconds:.0f} s") from None
    finally:
        await asyncio.sleep(0)  # the last page is on its way
        server.close()


class LoginCallback:
    """`await callback(url)` sends a person to the login page at that url, and returns the answer. AuthError is a no."""

    def __init__(self, name: str, show: Callable[[str, str], None]) -> None:
        self._name, self._show = name, show
        self._state: str | None = None
        self._answer: asyncio.Future[CallbackQuery] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def __call__(self, url: str, note: str = "") -> CallbackQuery:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url, note)
        answer = await self._answer
        if "error" in answer:
            words = ": ".join(answer[key] for key in ("error", "error_description") if answer.get(key))
            raise AuthError(f"the login to {self._name} was refused ({in_short(words, MAX_QUOTED)})")
        return answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(head.split(b"\r\n", 1)[0].decode("ascii", "replace")))
                await writer.drain()
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()

    def _reply(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        try:
            target = urlsplit(rest.partition(" ")[0])
        except ValueError:
            target = urlsplit("")
        if target.path != CALLBACK_PATH or method != "GET":
            return _page(HTTPStatus.NOT_FOUND, "Nothing here", "This address is for the end of a login only.")
        answer = {key: values[0] for key, values in parse_qs(target.query).items()}
        if not self._is_ours(answer) or self._answer.done():
            text = "It does not belong to the login that is under way. Please start again from the terminal."
            return _page(HTTPStatus.BAD_REQUEST, "This answer is not expected", text)
        self._answer.set_result(answer)
        if "error" in answer:
            return _page(HTTPStatus.OK, "Not logged in", f"{self._name} was not given access. You can close this page.")
        return _page(HTTPStatus.OK, "Almost done", f"Back to the terminal to see that {self._name} is logged in.")

    def _is_ours(self, answer: CallbackQuery) -> bool:
        if self._state is None:  # nobody has been sent to a login page yet
            return False
        if "state" not in answer:  # some servers forget it when they refuse; that can only end a login
            return "error" in answer
        known = compare_digest(answer["state"].encode(), self._state.encode())
        return known and ("code" in answer or "error" in answer)


def open_browser(url: str) -> None:
    """Open a page where there is a browser with a window. One in the terminal would take it over."""
    if not has_window() and not os.environ.get("BROWSER"):
        return
    import webbrowser
    from threading import Thread

    def show() -> None:
        with suppress(OSError, webbrowser.Error):  # the page's address is on the terminal, too
            webbrowser.open(url)

    Thread(target=show, name="onetool-browser", daemon=True).start()  # some only come back when they are closed


def _page(status: HTTPStatus, title: str, text: str) -> bytes:
    body = CALLBACK_PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Connection: close",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
