"""The pack `fs`: reading files and folders below the allowed roots.

The roots are `fs.roots` in the config (`fs: {roots: [docs, src]}`), by default the working folder.
`services.file_access` enforces them; this module has the limits and the error messages.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from onetool.core.errors import BadArguments
from onetool.core.text import nearest
from onetool.sdk import ToolFailure, tool

if TYPE_CHECKING:
    from onetool.services.file_access import PathRefusedError, Roots

pack = "fs"

MAX_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 10_000
MAX_DEPTH = 32


class Listed(TypedDict):
    """An entry of a folder."""

    path: str
    type: Literal["directory", "file", "symlink", "other", "truncated"]
    size: int | None
    error: NotRequired[str]
    note: NotRequired[str]


@tool(read_only=True)
def list_dir(path: str = ".", recursive: bool = False, maxDepth: int = 4) -> list[Listed]:  # noqa: N803
    """List a folder: path, type and size of each entry, sorted by name, optionally with subfolders.

    Links are listed but not followed. At most 10,000 entries are returned; if there are more, the last item has the
    type "truncated" and a note. Folders that can't be opened have an "error".

    Args:
        path: The folder: relative to the first allowed folder (by default the working folder, "."), or an absolute
            path below an allowed folder. "~" and "$HOME" are not expanded.
        recursive: Also list the entries of subfolders, each after its folder.
        maxDepth: With recursive, the number of levels: 1 is the folder itself. Values larger than 32 count as 32.

    Returns:
        A list of {path, type, size}. Pass the path to read_file or list_dir unchanged (bytes that are not UTF-8 are
        escaped as \\xff). The type is "directory", "file", "symlink" or "other"; the size is in bytes, and null except
        for files.
    """
    levels = _clamped("maxDepth", maxDepth, MAX_DEPTH)
    with _allowed_roots(path) as roots:
        entries = roots.list_folder(path, levels if recursive else 1, MAX_ENTRIES + 1)
    start = "" if path == "." else path if path.endswith("/") else f"{path}/"
    listed: list[Listed] = []
    for entry in entries[:MAX_ENTRIES]:
        listed.append({"path": start + entry.path, "type": entry.kind, "size": entry.size})
        if entry.error:
            listed[-1]["error"] = _message(entry.error, start + entry.path)
    if len(entries) > MAX_ENTRIES:
        note = f"Only the first {MAX_ENTRIES:,} entries are listed. List a subfolder, or fewer levels."
        listed.append({"path": path, "type": "truncated", "size": None, "note": note})
    return listed


@tool(read_only=True)
def read_file(path: str, maxBytes: int = 204800, encoding: Literal["utf-8", "base64"] = "utf-8") -> str:  # noqa: N803
    """Read a whole file as text, unchanged except for a UTF-8 byte order mark, which is left out.

    Only regular files below the allowed folders can be read. Files of more than maxBytes are an error, not truncated.
    Binary files are an error unless encoding is "base64".

    Args:
        path: The file: relative to the first allowed folder (by default the working folder), or an absolute path
            below an allowed folder. "~", "$HOME" and "%20" are not expanded. Paths from list_dir can be used unchanged.
        maxBytes: The maximum size in bytes. Values larger than 16777216 (16 MiB) count as 16777216.
        encoding: "utf-8" for text, "base64" for the bytes of any file.

    Returns:
        The file's text, or its bytes as base64.
    """
    limit = _clamped("maxBytes", maxBytes, MAX_BYTES)
    with _allowed_roots(path) as roots:
        content = roots.read_file(path, limit + 1)
    if len(content.data) > limit:
        more = f"{content.size:,}" if content.size > limit else f"more than {limit:,}"  # it may grow or be unknown
        if max(content.size, limit + 1) > MAX_BYTES:
            advice = f"Files of more than {MAX_BYTES:,} bytes can't be read."
        else:
            advice = f"Pass a larger maxBytes, up to {MAX_BYTES:,}."
        message = f"{_quoted(path)} has {more} bytes; the limit is {limit:,}. {advice}"
        raise ToolFailure(message, reason="too_large")
    if encoding == "base64":
        import base64

        return base64.b64encode(content.data).decode("ascii")
    try:
        if b"\0" not in content.data:  # UTF-16 without a byte order mark is valid UTF-8 full of NULs
            return content.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise ToolFailure(
        f'{_quoted(path)} is binary, or not in UTF-8. Use encoding="base64" to get its bytes.',
        reason="binary",
    )


def _clamped(name: str, value: int, limit: int) -> int:
    if value < 1:
        raise ToolFailure(f"{name} is {value}, but must be at least 1.", reason="bad_argument")
    return min(value, limit)


@contextmanager
def _allowed_roots(path: str) -> Iterator["Roots"]:
    """Yield the allowed roots. PathRefusedError is converted to a ToolFailure with a message."""
    from onetool.sdk import get_config  # not needed for listing the tools
    from onetool.services.file_access import PathRefusedError, Roots

    if literal := re.fullmatch(r"[bB]([\"'])(.*)\1", path, re.DOTALL):
        raise _bytes_error(path, literal[2])
    roots = None
    try:
        config = get_config()
        configured = config.get("roots", ["."])
        folders = [configured] if isinstance(configured, str) else configured
        if not isinstance(folders, Sequence) or not all(isinstance(folder, str) and folder for folder in folders):
            raise ToolFailure(f"fs.roots must be a list of folders, but is {configured!r}.", reason="bad_config")
        roots = Roots(list(folders), config.get("private", ()), within=config.get("within"))
        yield roots
    except PathRefusedError as refused:
        if refused.reason == "not_found":
            import base64

            with suppress(ValueError):  # code that passes bytes sends Base64
                decoded = base64.b64decode(path, validate=True).decode()
                if decoded and decoded.isprintable() and decoded.isascii():
                    raise _bytes_error(path, decoded) from None
        raise _failure(refused, path, roots) from None


def _bytes_error(path: str, decoded: str) -> BadArguments:
    """Return the error for a path that looks like bytes. A file with such a name can be read as ./b'a'."""
    return BadArguments(f"path: expected a string, got {_quoted(path)}, which looks like bytes; use {_quoted(decoded)}")


def _failure(refused: "PathRefusedError", path: str, roots: "Roots | None") -> ToolFailure:
    if refused.reason == "denied" and roots:  # the same error whether the path exists or not
        allowed = ", ".join(map(_quoted, roots.paths)) or "none"
        return ToolFailure(
            f"{_quoted(path)} is outside of the allowed folders ({allowed}). "
            "Use a path inside of these; the operator can allow more folders in fs.roots.",
            reason="denied",
        )
    if refused.reason == "not_found" and roots:
        return _not_found(path, roots)
    reason = "denied" if refused.reason in DENIED else refused.reason
    return ToolFailure(_message(refused.reason, path, refused.detail), reason=reason)


DENIED = ("private", "state", "closed", "root_outside")
MESSAGES = {
    "bad_path": "{path} is not a valid path: {detail}.",
    "closed": "{path} is closed to tools, regardless of fs.roots: folders for keys, passwords and browser "
    "profiles are never opened, nor are /proc, /sys and /dev.",
    "is_a_directory": "{path} is a directory, not a file. Use fs.list_dir to see what is in it.",
    "link_loop": "{path} has too many symbolic links, or a loop (ELOOP).",
    "name_too_long": "{path} is too long, or one of its parts is (ENAMETOOLONG).",
    "no_permission": "{path} can't be opened: permission denied.",
    "not_a_directory": "{path} is not a directory, or leads through a file. Use fs.read_file to read files.",
    "not_a_file": "{path} is not a regular file: devices, pipes and sockets can't be read.",
    "not_found": "{path} does not exist.",
    "private": "{path} belongs to OneTool and can't be read by tools.",
    "root_missing": "The allowed folder {detail!r} can't be opened. The operator can change it in fs.roots.",
    "root_outside": "The folder {detail!r} in the project's fs.roots is outside of the project. The operator "
    "can allow it in fs.roots of ~/.onetool/onetool.yaml.",
    "state": "{path} is closed to tools: the folder contains OneTool's state (see its file .onetool-state).",
    "unreadable": "{path} could not be read: {detail}.",
}


def _message(reason: str, path: str, detail: str = "") -> str:
    return MESSAGES[reason].format(path=_quoted(path), detail=detail or "the system reported an error")


def _not_found(path: str, roots: "Roots") -> ToolFailure:
    place = roots.locate_missing(path, MAX_ENTRIES)
    if place is None:
        return ToolFailure(_message("not_found", path), reason="not_found")
    folder, missing = _quoted(place.folder), _quoted(place.missing)
    if place.missing in place.names:
        message = f"{_quoted(path)} does not exist: {missing} in {folder} is a broken link."
        return ToolFailure(message, reason="not_found")
    near = " or ".join(map(_quoted, nearest(place.missing, place.names)))
    message = f"{_quoted(path)} does not exist."
    if place.missing != os.path.basename(path) or (near and place.missing != path):  # otherwise that says it all
        message = f"{message[:-1]}: there is no {missing} in the folder {folder}."
    look = f"fs.list_dir(path={folder}) lists the folder"
    return ToolFailure(f"{message} Did you mean {near}?" if near else message, reason="not_found", hints=[look])


def _quoted(path: str) -> str:
    """Return a path for a message: quoted, with control characters escaped, and truncated."""
    return repr(path if len(path) <= 300 else f"{path[:300]}…")
