"""A login in the browser: a callback takes what comes of it, and a store keeps the tokens.

`LoginCallback` is a listener on this machine that takes the answer of the authorization server. It takes one answer,
and only one with the `state` of the login under way: any page in the browser can send requests to it.

`LoginStore` keeps the tokens: one document each, private or encrypted. Tokens belong to a url
and to a client: with another one they are not used. A refresh token may be good for one use only, so whoever uses it
holds the lock, and first looks whether another process has already used it.
"""

import asyncio
import html
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from secrets import compare_digest
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from onetool.core.system import has_window
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.documents import Documents, HeldDocument, StoredDocument, Version
from onetool.http.errors import AuthError

T = TypeVar("T")

PATIENCE = 60.0  # seconds to wait for who renews the same tokens; longer than one such request may take
KEEPING = 20.0  # seconds for which new tokens are offered to a database that is away: there are no others
PAUSE = 0.5  # seconds between two such offers

CALLBACK_HOST = "127.0.0.1"
CALLBACK_PATH = "/callback"
REQUEST_SECONDS = 5.0  # seconds for a request to arrive as a whole
LONGEST_REQUEST = 16 * 1024  # bytes of a request

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
        self._logins = logins

    def version(self) -> Version:
        """Differs after any change. It never waits."""
        return self._logins.version(self.name)

    def load(self) -> tuple[Version, StoredLogin]:
        """What is kept. A damaged document counts as empty: a new login mends it.

        Raises AuthError if the database can't be read, or the login was encrypted with another key.
        """
        try:
            return self.decoded(self._logins.load(self.name))
        except DatabaseError as error:
            raise _not_read(error) from None

    def read(self) -> StoredLogin:
        return self.load()[1]

    async def load_async(self) -> tuple[Version, StoredLogin]:
        return await asyncio.to_thread(self.load)

    def decoded(self, document: StoredDocument) -> tuple[Version, StoredLogin]:
        login = self.empty
        with suppress(msgspec.MsgspecError, RecursionError):
            login = login if document.body is None else msgspec.json.decode(document.body, type=StoredLogin)
        is_ours = (login.url, login.key) == (self.empty.url, self.empty.key)
        return document.version, login if is_ours else self.empty

    @asynccontextmanager
    async def locked(self) -> "AsyncIterator[HeldLogin]":
        """One at a time, also among processes and replicas. Waiting keeps nobody else of this process waiting."""
        try:
            held = self._logins.locked_async(self.name, PATIENCE)
            document = await held.__aenter__()
        except (OSError, DatabaseError) as error:
            raise _not_locked(self._logins.describe(self.name), error) from None
        try:
            yield HeldLogin(self, document, self._logins.describe(self.name))
        finally:
            await held.__aexit__(None, None, None)


class HeldLogin:
    """A login whose lock is held."""

    def __init__(self, store: LoginStore, held: HeldDocument, place: str) -> None:
        self._store, self._held, self._place = store, held, place

    async def load(self) -> tuple[Version, StoredLogin]:
        """What is kept now: another process may have changed it before we had the lock."""
        try:
            return self._store.decoded(await to_the_end(self._held.load))
        except DatabaseError as error:
            raise _not_read(error) from None

    async def save(self, login: StoredLogin) -> Version:
        """Keep new tokens, also if the lock was lost meanwhile: those of before may be good no more."""
        return await to_the_end(self._save, login)

    async def clear(self, login: StoredLogin) -> Version:
        """Keep that its tokens are over; not if the lock was lost: others may have got new ones."""
        await self.check()
        return await to_the_end(self._save, login)

    async def check(self) -> None:
        """Raises AuthError if the lock was lost."""
        try:
            await to_the_end(self._held.check)
        except DatabaseError as error:
            raise AuthError(f"the login can't be refreshed now: {error}") from None

    def _save(self, login: StoredLogin) -> Version:
        body, until = msgspec.json.format(msgspec.json.encode(login), indent=1), time.monotonic() + KEEPING
        while True:
            try:
                return self._held.write(body)
            except (DatabaseAwayError, ChangeUnknownError) as error:
                if time.monotonic() >= until:
                    raise _not_kept(self._place, str(error)) from None
                time.sleep(PAUSE)
            except DatabaseError as error:
                raise _not_kept(self._place, str(error)) from None


def forget(logins: Documents, name: str) -> bool:
    """Remove what is kept, for whichever url; whether there was anything."""
    try:
        if logins.version(name) is None:
            return False
        with logins.locked(name, PATIENCE) as held:
            return held.delete()
    except (OSError, DatabaseError) as error:
        raise _not_locked(logins.describe(name), error) from None


async def to_the_end(work: Callable[..., T], *args: Any) -> T:
    """Run it in a thread. Who is cancelled meanwhile waits for its end: it must not let go of a lock before."""
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


def _not_locked(place: str, error: OSError | DatabaseError) -> AuthError:
    if isinstance(error, TimeoutError):
        return AuthError(f"another process holds {place} for more than {PATIENCE:.0f} s; end it, and try again")
    return _not_kept(place, (error.strerror or str(error)) if isinstance(error, OSError) else str(error))


def _not_kept(place: str, why: str) -> AuthError:
    return AuthError(f"the login can't be kept in {place}: {why}")


def _not_read(error: DatabaseError) -> AuthError:
    return AuthError(f"the login can't be read: {error}")


class LoginCallback:
    """`await callback(url)` waits for the answer to the login page at that url."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name = name
        self._show = show
        self._state: str | None = None
        self._answer: asyncio.Future[CallbackQuery] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def __call__(self, url: str) -> CallbackQuery:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url)
        return await self._answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
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
        return self._take({key: values[0] for key, values in parse_qs(target.query).items()})

    def _take(self, answer: CallbackQuery) -> bytes:
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


@asynccontextmanager
async def listening(name: str, port: int | None, show: Callable[[str], None]) -> AsyncIterator[LoginCallback]:
    """A callback, while it is needed. An OSError when the port is taken."""
    callback = LoginCallback(name, show)
    server = await asyncio.start_server(callback.serve, CALLBACK_HOST, port or 0, limit=LONGEST_REQUEST)
    callback.redirect_uri = f"http://{CALLBACK_HOST}:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
    try:
        yield callback
    finally:
        await asyncio.sleep(0)  # the last page is on its way
        server.close()


def open_browser(url: str) -> None:
    """Open a page where there is a browser with a window. One in the terminal would take it over."""
    if not has_window() and not os.environ.get("BROWSER"):
        return
    from threading import Thread

    # Some of them only come back when they are closed.
    Thread(target=_open_in_thread, args=(url,), name="onetool-browser", daemon=True).start()


def _open_in_thread(url: str) -> None:
    import webbrowser

    with suppress(OSError, webbrowser.Error):  # the page's address is on the terminal, too
        webbrowser.open(url)


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
