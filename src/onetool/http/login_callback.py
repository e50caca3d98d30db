"""The end of a login in the browser: a listener on this machine that takes the answer of the authorization server.

It takes one answer, and only one with the `state` of the login under way: any page in the browser can send requests to
it.
"""

import asyncio
import html
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

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
    has_window = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if not has_window and not os.environ.get("BROWSER"):
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
