"""The page at `/`, and its files below `/assets`. Both are public, and contain no data.

The page uses only the REST API. `static/` is built by `make web` and committed, so that servers and the wheel need no
Node. The files are read and compressed at the first visit: a server without visitors keeps none of them in memory.
Files are looked up by name in a dict, so that no path leads out of the folder. Clients that don't ask for HTML, such as
curl, get a short text that says how to connect.
"""

import asyncio
import gzip
import os
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from onetool.http.asgi import BARE_PREFIX, HEAD, HttpError, Receive, Scope, Send, respond, takes_gzip

# The files in memory

MEDIA_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".wasm": b"application/wasm",
    ".woff2": b"font/woff2",
}
UNKNOWN_TYPE = b"application/octet-stream"
PACKED_ALREADY = (".ico", ".png", ".woff2")
SMALLEST_PACKED = 500  # bytes; compressing a smaller file saves nothing
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8,}\.\w+")  # a hash of the content, at the end of the name


class StaticFile(NamedTuple):
    """A file to send. `packed` is its gzip form, if that is shorter."""

    body: bytes
    packed: bytes | None
    media_type: bytes
    etag: bytes  # of the content, without quotes
    is_hashed: bool  # the name contains a hash of the content


def read_folder(folder: Path) -> dict[str, StaticFile]:
    """Return all files below the folder, by their path in it (`assets/index-Bx31aZ09.js`). Links are left out."""
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in sorted(names))
    return {
        path.relative_to(folder).as_posix(): _read_asset(path)
        for path in paths
        if path.is_file() and not path.is_symlink()
    }


def _read_asset(path: Path) -> StaticFile:
    body, ending = path.read_bytes(), path.suffix.lower()
    packed = None
    if len(body) >= SMALLEST_PACKED and ending not in PACKED_ALREADY:
        packed = gzip.compress(body, 9, mtime=0)
        packed = packed if len(packed) < len(body) else None
    etag = sha256(body).hexdigest()[:32].encode()
    return StaticFile(body, packed, MEDIA_TYPES.get(ending, UNKNOWN_TYPE), etag, _HASHED.search(path.name) is not None)


# The page

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
ASSETS = "/assets/"
HTML = b"text/html"
TEXT = b"text/plain; charset=utf-8"

# Scripts and styles come only from this server; frames, forms and <base> are refused.
# Trusted Types: only the page's own library may write HTML.
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    b"trusted-types svelte-trusted-html"
)
PAGE_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
ALWAYS_ASK = (b"cache-control", b"no-cache")  # a copy may be kept, but must be revalidated each time
FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")


class PageApp:
    """The ASGI app of the page and its files. `connect_text` returns the text for clients that don't ask for HTML."""

    def __init__(self, connect_text: Callable[[Scope], str], folder: Path = FOLDER) -> None:
        self._connect_text = connect_text
        self._folder = folder
        self._files: dict[str, StaticFile] = {}
        self._reading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope[HEAD]
        if scope.get(BARE_PREFIX):
            query = scope.get("query_string", b"")
            where = b"/?" + query if query else b"/"  # the mount adds its prefix, and the page's links need the slash
            await respond(send, 308, b"", TEXT, [*PAGE_HEADERS, (b"location", where)])
        elif scope["path"].startswith(ASSETS):
            await self._asset(scope["path"].removeprefix("/"), headers, send)
        elif scope["path"] != "/":
            raise HttpError(404, "not_found", f"There is no file at {scope['path'][:100]!r}.")
        elif HTML in headers.get(b"accept", b"").lower():
            await self._index(headers, send)
        else:
            text = self._connect_text(scope).encode()
            await respond(send, 200, text, TEXT, [*PAGE_HEADERS, ALWAYS_ASK, (b"vary", b"accept")])

    async def _index(self, headers: Mapping[bytes, bytes], send: Send) -> None:
        found = (await self._read()).get(INDEX)
        if found is None:
            message = (
                "The page is not built in this tree. Run `make web`, which needs Node. The REST API needs no page."
            )
            raise HttpError(503, "not_built", message)
        await _send_file(found, headers, send, [ALWAYS_ASK, (b"vary", b"accept, accept-encoding")])

    async def _asset(self, name: str, headers: Mapping[bytes, bytes], send: Send) -> None:
        found = (await self._read()).get(name)
        if found is None:
            hint = "reload a page that was opened before an update"
            raise HttpError(404, "not_found", f"There is no file at {f'/{name}'[:100]!r}; {hint}.", [ALWAYS_ASK])
        cached = FOR_EVER if found.is_hashed else ALWAYS_ASK
        await _send_file(found, headers, send, [cached, (b"vary", b"accept-encoding")])

    async def _read(self) -> dict[str, StaticFile]:
        """Return the files. If the page is not built yet, the next visit looks again."""
        if not self._files:
            async with self._reading:
                self._files = self._files or await asyncio.to_thread(read_folder, self._folder)
        return self._files


async def _send_file(
    file: StaticFile, headers: Mapping[bytes, bytes], send: Send, more: list[tuple[bytes, bytes]]
) -> None:
    packed = file.packed if takes_gzip(headers) else None
    etag = b'"%s"' % file.etag if packed is None else b'"%s-gzip"' % file.etag  # each encoding needs its own ETag
    own = [*PAGE_HEADERS, *more, (b"etag", etag)]
    known = headers.get(b"if-none-match", b"").split(b",")
    if any(one.strip().removeprefix(b"W/") in (etag, b"*") for one in known):
        await send({"type": "http.response.start", "status": 304, "headers": own})
        await send({"type": "http.response.body", "body": b""})
    elif packed is None:
        await respond(send, 200, file.body, file.media_type, own)
    else:
        await respond(send, 200, packed, file.media_type, [*own, (b"content-encoding", b"gzip")])
