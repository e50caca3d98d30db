"""Login in the browser, for HTTP tools and MCP servers: the redirects and a store for the tokens.

    async with browser_login(name, port, say) as callback: answer = await callback(page)

`LoginCallback` listens on this machine for the authorization server's answer. It accepts a single answer, with the
`state` of the pending login, because any page in the browser can send requests to it.

`LoginStore` keeps the tokens, one private or encrypted document per login. Tokens belong to a URL and a client and
are never used with others. A refresh token may be valid for one use only, so a process that uses it holds the lock
and checks first whether another process has already used it.
"""

import asyncio
import html
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from secrets import compare_digest
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from onetool.core.system import has_window
from onetool.core.work import run_in_thread
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.documents import Documents, HeldDocument, StoredDocument, Version
from onetool.http.errors import AuthError, in_short

LOGIN_S = 300.0  # for a user to log in
MAX_WAIT_S = 60.0  # for another process that renews the same tokens; longer than such a request may take
SAVE_TIMEOUT_S = 20.0  # for saving new tokens if the database is unavailable: the old ones may be invalid
PAUSE_S = 0.5  # between two attempts to save them
MAX_QUOTED = 300  # characters of an authorization server's message in ours

Say = Callable[[str], None]

CALLBACK_HOST = "127.0.0.1"
CALLBACK_PATH = "/callback"
REQUEST_S = 5.0  # for a request to arrive completely
MAX_REQUEST = 16 * 1024  # bytes of a request

CallbackQuery = dict[str, str]
"""The authorization server's query, sent by the browser: `code`, `state`, `iss`, or `error`, `error_description`."""

CALLBACK_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>body{{font:1.1rem/1.6 system-ui,sans-serif;max-width:30rem;
margin:20vh auto;padding:0 1rem;color:#222;background:#fff}}@media(prefers-color-scheme:dark){{body{{color:#ddd;
background:#1b1b1b}}}}</style><h1>{title}</h1><p>{text}</p></html>"""


class StoredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A stored login. The mappings are those of the protocol: see RFC 6749, 7591, 8414 and 9728."""

    url: str
    key: str  # identifies the client that the tokens belong to
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None  # computed from `expires_in` when the token arrived
    authorization_server: dict[str, Any] | None = None  # metadata of the server that refreshes the tokens
    resource: dict[str, Any] | None = None
    wanted: str | None = None  # scopes that the server asked for later: the next login requests them, too
    origins: tuple[str, ...] = ()  # for HTTP tools: the only origins that the tokens may be sent to

    def __repr__(self) -> str:
        return "StoredLogin(***)"


class LoginStore:
    """The stored login of one URL and one client."""

    def __init__(self, logins: Documents, name: str, url: str, key: str) -> None:
        self.name = name
        self.empty = StoredLogin(url=url, key=key)
        self.save_error = f"the login can't be stored in {logins.describe(name)}"
        self._logins = logins

    def version(self) -> Version:
        """Return a version that differs after any change. Never waits."""
        return self._logins.version(self.name)

    def load(self) -> tuple[Version, StoredLogin]:
        """Return the stored login. A damaged document counts as empty: a new login repairs it.

        Raise AuthError if the database can't be read, or the login was encrypted with another key.
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
        """Hold the lock, which excludes other processes and replicas. Waiting does not block the event loop."""
        held = self._logins.locked_async(self.name, MAX_WAIT_S)
        with _as_auth_error(self.save_error):
            document = await held.__aenter__()
        try:
            yield HeldLogin(self, document)
        finally:
            await held.__aexit__(None, None, None)


class HeldLogin:
    def __init__(self, store: LoginStore, held: HeldDocument) -> None:
        self._store, self._held = store, held

    async def load(self) -> tuple[Version, StoredLogin]:
        """Return the stored login: another process may have changed it before we got the lock."""
        with _as_auth_error("the login can't be read"):
            return self._store.decoded(await run_in_thread(self._held.load))

    async def check(self) -> None:
        """Raise AuthError if the lock was lost."""
        with _as_auth_error("the login can't be refreshed now"):
            await run_in_thread(self._held.check)

    async def clear(self, login: StoredLogin) -> Version:
        """Mark the tokens as expired, unless the lock was lost: another process may have stored new ones."""
        await self.check()
        return await self.save(login)

    async def save(self, login: StoredLogin) -> Version:
        """Save new tokens even if the lock was lost: the old ones may be invalid by now."""
        return await run_in_thread(self._save, login)

    def _save(self, login: StoredLogin) -> Version:
        body, until = msgspec.json.format(msgspec.json.encode(login), indent=1), time.monotonic() + SAVE_TIMEOUT_S
        with _as_auth_error(self._store.save_error):
            while True:
                try:
                    return self._held.write(body)
                except (DatabaseAwayError, ChangeUnknownError):
                    if time.monotonic() >= until:
                        raise
                    time.sleep(PAUSE_S)


def forget(logins: Documents, name: str) -> bool:
    """Remove the stored login, for any URL. Return whether there was one."""
    with _as_auth_error(f"the login can't be removed from {logins.describe(name)}"):
        if logins.version(name) is None:
            return False
        with logins.locked(name, MAX_WAIT_S) as held:
            return held.delete()


@contextmanager
def _as_auth_error(what: str) -> Iterator[None]:
    """Turn errors from a database or its lock into AuthError."""
    try:
        yield
    except TimeoutError:
        why = f"another process has locked it for more than {MAX_WAIT_S:.0f} s; stop that process and try again"
        raise AuthError(f"{what}: {why}") from None
    except (OSError, DatabaseError) as error:
        raise AuthError(f"{what}: {getattr(error, 'strerror', None) or error}") from None


@asynccontextmanager
async def browser_login(
    name: str, port: int | None, say: Say, browse: Say | None = None, seconds: float = LOGIN_S
) -> "AsyncIterator[LoginCallback]":
    """Listen for `seconds` seconds for the end of a login to `name`. The listener is always closed, even on Ctrl-C."""
    callback = LoginCallback(name, say, browse or open_browser)
    try:
        server = await asyncio.start_server(callback.serve, CALLBACK_HOST, port or 0, limit=MAX_REQUEST)
    except OSError as error:
        place = f"{CALLBACK_HOST}:{port or 'any port'}"
        raise AuthError(f"can't listen on {place} for the redirect of the login: {error.strerror}") from None
    callback.redirect_uri = f"http://{CALLBACK_HOST}:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
    try:
        async with asyncio.timeout(seconds):
            yield callback
    except TimeoutError:
        raise AuthError(f"the login to {name} was not finished within {seconds:.0f} s") from None
    finally:
        await asyncio.sleep(0)  # let the last page be sent
        server.close()


class LoginCallback:
    """`await callback(url)` shows the login page at this URL and returns the answer. Raises AuthError on refusal."""

    def __init__(self, name: str, say: Say, browse: Say) -> None:
        self._name, self._say, self._browse = name, say, browse
        self._state: str | None = None
        self._answer: asyncio.Future[CallbackQuery] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def __call__(self, url: str, note: str = "") -> CallbackQuery:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._say(f"To log in to {self._name}, open this page in a browser on this machine:\n\n  {url}\n")
        if note:
            self._say(f"{note}\n")
        self._browse(url)
        answer = await self._answer
        if "error" in answer:
            reason = ": ".join(answer[key] for key in ("error", "error_description") if answer.get(key))
            raise AuthError(f"the login to {self._name} was refused ({in_short(reason, MAX_QUOTED)})")
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
            return _page(HTTPStatus.NOT_FOUND, "Not found", "This address is only used to complete a login.")
        answer = {key: values[0] for key, values in parse_qs(target.query).items()}
        if not self._is_ours(answer) or self._answer.done():
            text = "It does not belong to the current login. Please start again from the terminal."
            return _page(HTTPStatus.BAD_REQUEST, "Unexpected response", text)
        self._answer.set_result(answer)
        if "error" in answer:
            return _page(HTTPStatus.OK, "Not logged in", f"{self._name} was not given access. You can close this page.")
        return _page(HTTPStatus.OK, "Almost done", f"Return to the terminal to see that {self._name} is logged in.")

    def _is_ours(self, answer: CallbackQuery) -> bool:
        if self._state is None:  # no login page has been shown yet
            return False
        if "state" not in answer:  # some servers omit it when they refuse; that can only end a login
            return "error" in answer
        known = compare_digest(answer["state"].encode(), self._state.encode())
        return known and ("code" in answer or "error" in answer)


def open_browser(url: str) -> None:
    """Open a page in a graphical browser. A text browser would take over the terminal."""
    if not has_window() and not os.environ.get("BROWSER"):
        return
    import webbrowser

    def show() -> None:
        with suppress(OSError, webbrowser.Error):  # the address of the page is on the terminal, too
            webbrowser.open(url)

    Thread(target=show, name="onetool-browser", daemon=True).start()  # some browsers block until they are closed


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
