"""Files that HTTP tools send. An argument is a path, the handle of a stored result, the name of an attached file, or a
`data:` URL.

The tool `fs.read_file` reads paths on behalf of the caller: callers who may not call it can't send files by path. Files
that contain a secret of the app are refused, because their content can't be masked.
"""

import asyncio
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from mimetypes import guess_extension, guess_type
from typing import Any, NamedTuple
from urllib.parse import unquote

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.text import replace_surrogates
from onetool.http.body import LARGE
from onetool.http.definition import MEDIA_TYPE
from onetool.http.errors import Redact
from onetool.http.template_parts import MAX_FIELDS

FILE_SCHEMA = {
    "type": "string",
    "description": "A file: its path, the handle of a stored result, or a URL like data:text/plain;name=a.txt,Hello",
}
MAX_FILE_BYTES = 16 * 1024**2  # limits.maxRequestBytes of imported tools that send files
FILE_TIMEOUT_MS = 60_000  # timeoutMs of the same tools
ANY_BYTES = "application/octet-stream"
DATA = "data:"

_HANDLE = re.compile(r"[0-9a-f]{32}")
_DATA_URL = re.compile(r"data:([^,]{0,500}?)(;base64)?,", re.IGNORECASE)
_STORED_BYTES = re.compile(r"data:[^,;]{1,200};base64,[A-Za-z0-9+/]*={0,2}")
_KIND = re.compile(MEDIA_TYPE)
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


class FileContent:
    """The content of a file, its media type, and its name (the last part of the path)."""

    __slots__ = ("data", "kind", "name")

    def __init__(self, path: str, kind: str | None, data: bytes) -> None:
        last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
        self.name = replace_surrogates(last) or "file"
        is_valid = kind is not None and _KIND.fullmatch(kind)
        self.kind = kind if kind and is_valid else guess_type(self.name)[0] or ANY_BYTES
        self.data = data


class FileSources(NamedTuple):
    """Readers of stored results and of paths. Both refuse files with more bytes than their second argument."""

    read_result: Callable[[str, int], str]
    read_path: Callable[[str, int], Awaitable[bytes]]


FindFile = Callable[[str], FileContent | None]

attached_file: ContextVar[FindFile | None] = ContextVar("onetool_attached_file", default=None)
"""Returns the file with this name among the attachments of the conversation in which a model calls the tool."""


async def load_files(
    names: Iterable[str], args: Mapping[str, Any], sources: FileSources | None, max_bytes: int, redact: Redact
) -> dict[str, Any]:
    """Return the arguments with files in place of their paths, handles and URLs. `max_bytes` limits the total."""
    loaded = dict(args)
    left = max_bytes
    for name in names:
        value = args.get(name)
        if value is None:
            continue
        values = value if isinstance(value, list | tuple) else (value,)
        files: list[FileContent] = []
        try:
            if len(values) > MAX_FIELDS:
                raise ToolFailure(f"has more than {MAX_FIELDS:,} files", "too_large")
            for item in values:
                files.append(await _load(item, sources, left, redact))
                left -= len(files[-1].data)
                if left < 0:
                    raise file_too_large(max_bytes)
        except ToolFailure as failure:
            error = BadArguments(f"the argument `{name}` {failure}", failure.reason, failure.hints)
            error.argument = name
            raise error from None
        loaded[name] = files if isinstance(value, list | tuple) else files[0]
    return loaded


def file_preview(source: Any) -> Any:
    """Return a placeholder for a file, for previews. Reads nothing."""
    if isinstance(source, list | tuple):
        return list(map(file_preview, source))
    text = source if isinstance(source, str) and len(source) <= 200 else "a file"
    is_path = not text.startswith(DATA) and not _HANDLE.fullmatch(text)
    return FileContent(text if is_path else "file", None, f"<content of {text}>".encode())


async def _load(source: Any, sources: FileSources | None, left: int, redact: Redact) -> FileContent:
    if not isinstance(source, str):
        raise ToolFailure("is not a string")
    if source[:5].lower() == DATA:
        if len(source) > LARGE:
            return await asyncio.to_thread(_read_data_url, source, left)
        return _read_data_url(source, left)
    find_attached = attached_file.get()
    file = None if find_attached is None else find_attached(source)
    if file is None:
        if sources is None:
            raise ToolFailure("names a file, and files can't be read here; give its content as a data: URL")
        if _HANDLE.fullmatch(source):
            file = await asyncio.to_thread(lambda: stored_file(sources.read_result(source, left), left))
        else:
            file = FileContent(source, None, await sources.read_path(source, left))
    text = await asyncio.to_thread(file.data.decode, "utf-8", "replace")
    if await asyncio.to_thread(redact, text) != text:
        raise ToolFailure("names a file that contains a secret of this server; such files are not sent", "denied")
    return file


def _read_data_url(text: str, max_bytes: int) -> FileContent:
    """Parse `data:image/png;name=a.png;base64,…`. Raise ToolFailure if the text isn't a data: URL, or is too large."""
    found = _DATA_URL.match(text)
    if found is None:
        raise ToolFailure("is not a data: URL: write data:text/plain,Hello or data:image/png;base64,iVBOR…")
    kind, *parameters = found[1].split(";")
    if kind and not _KIND.fullmatch(kind):
        raise ToolFailure(f"has an invalid media type: {kind[:60]!r} (expected one like image/png)")
    name = f"file{guess_extension(kind) or ''}"
    for parameter in parameters:
        if parameter.lower().startswith("name="):
            name = unquote(parameter[5:]) or name
        elif _KIND.fullmatch(f"{kind};{parameter}"):
            kind = f"{kind};{parameter}"
    content = text[found.end() :]
    min_bytes = max(len(content) - 2 * content.count("%"), len(content) // 3)
    if (min_bytes * 3 // 4 - 2 if found[2] else min_bytes) > max_bytes:
        raise file_too_large(max_bytes)
    try:
        # One character per byte: `unquote_to_bytes` needs 200 bytes of memory for every escape.
        plain = _ESCAPE.sub(lambda escape: chr(int(escape[0][1:], 16)), content.encode().decode("latin-1"))
        data = b64decode(plain, validate=True) if found[2] else plain.encode("latin-1")
    except (ValueError, UnicodeEncodeError):
        raise ToolFailure("is a data: URL whose content can't be decoded: expected Base64 after `;base64,`") from None
    return FileContent(name, kind or None, data)


def stored_file(text: str, max_bytes: int) -> FileContent:
    """Return a stored result as a file: bytes come from their data: URL, everything else is text."""
    if _STORED_BYTES.fullmatch(text):
        try:
            return _read_data_url(text, max_bytes)
        except ToolFailure as failure:
            if failure.reason == "too_large":
                raise
    return FileContent("result.txt", "text/plain", text.encode("utf-8", "replace"))


def file_too_large(max_bytes: int) -> ToolFailure:
    return ToolFailure(f"is larger than the tool may send: {max_bytes:,} bytes (limits.maxRequestBytes)", "too_large")
