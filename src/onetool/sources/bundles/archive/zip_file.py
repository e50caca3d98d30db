"""A bundle as a ZIP file, and back: `bundle.json` and `tools/<name>.json`, as the folder of files has them.

The same bundle makes the same bytes. An archive comes from anywhere: no header of it is trusted, what is in it is read
in pieces and counted, and nothing is written to a disk here. What breaks the form of an archive is refused as a whole;
what is wrong inside of its files is told of all of them, as mistakes, and nobody should take in an archive with any.
"""

import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.files.form import bundle_text, parsed, read_bundle_file, read_tool_file, tool_text
from onetool.sources.bundles.files.layout import tool_file
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import check_id

MAX_BYTES = 32 * 1024**2  # of an archive
MAX_TOTAL = 64 * 1024**2  # of what is in it
MAX_ENTRY = 8 * 1024**2
MAX_ENTRIES = 10_000
MAX_RATIO = 200  # JSON that repeats itself is packed to a fiftieth
SMALL = 64 * 1024  # what little is packed by any ratio
PIECE = 256 * 1024
MOST_SECONDS = 60.0

BUNDLE = "bundle.json"
TOOLS = "tools/"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first time that a ZIP file can say
_ENTRY = re.compile(r"tools/[^/\\]{1,250}\.json")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RuntimeError)
_HEADER = b"PK\x01\x02"  # of an entry, in the list at the end
_MADE = "make it with `onetool bundles export`, or pack bundle.json and the folder tools/ alone"


class Unpacked(NamedTuple):
    bundle: Bundle | None  # None where its file is among the mistakes
    tools: list[Tool]
    mistakes: list[Mistake]  # `file` is the entry


def pack(bundle: Bundle, tools: Iterable[Tool]) -> bytes:
    """The archive of a bundle. Raises Invalid for one that is built in, or a tool that could not be read again."""
    if bundle.is_built_in:
        raise Invalid(f"the bundle {bundle.slug} is built in: every OneTool has it, and it can't be exported")
    texts = {BUNDLE: bundle_text(bundle)}
    for tool in tools:
        texts[tool_file("", tool.slug, tool.version).removeprefix("/")] = tool_text(tool, is_kept=True)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, texts[name])
    return buffer.getvalue()


def unpack(data: bytes | Path) -> Unpacked:
    """What an archive has in it. Raises Invalid where its form is wrong or hostile: nothing of it should be used."""
    raw = data if isinstance(data, bytes) else _read(data)
    if raw.count(_HEADER) > MAX_ENTRIES:
        raise Invalid(f"the archive has more than {MAX_ENTRIES:,} entries")
    try:
        with zipfile.ZipFile(BytesIO(raw)) as file:
            return _things(_texts(file))
    except _DAMAGED as error:
        raise Invalid(f"the file is no ZIP archive, or a damaged one ({error}); {_MADE}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path} can't be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Invalid(f"{path} is larger than {MAX_BYTES // 1024**2} MiB, which no bundle's archive is")
    return data


# Its form


def _texts(file: zipfile.ZipFile) -> dict[str, bytes]:
    """The bytes of every entry, if all of them may be there."""
    entries = [entry for entry in file.infolist() if not _is_the_folder(entry)]
    if len(entries) > MAX_ENTRIES:
        raise Invalid(f"the archive has more than {MAX_ENTRIES:,} entries")
    seen: dict[str, str] = {}
    for entry in entries:
        _check_entry(entry)
        alike = unicodedata.normalize("NFC", entry.filename).casefold()
        if alike in seen:
            raise Invalid(f"{entry.filename!r}: there is {seen[alike]!r} as well, which is the same to some systems")
        seen[alike] = entry.filename
    if BUNDLE not in seen:
        raise Invalid(f"the archive has no {BUNDLE} at its top; {_MADE}")
    texts: dict[str, bytes] = {}
    left = MAX_TOTAL
    for entry in entries:
        with file.open(entry) as stream:
            texts[entry.filename] = _bounded(stream, entry, min(left, MAX_ENTRY))
        left -= len(texts[entry.filename])
    return texts


def _is_the_folder(entry: zipfile.ZipInfo) -> bool:
    return entry.filename == TOOLS and entry.file_size == 0


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename  # with everything that the reader would cut off
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if name != entry.filename or not name.isprintable() or "\\" in name:
        raise Invalid(f"{name!r:.200}: an entry can't have such a name; {_MADE}")
    if kind == stat.S_IFLNK:
        raise Invalid(f"{name!r}: it is a link, and links are not followed; {_MADE}")
    if kind not in (0, stat.S_IFREG):
        raise Invalid(f"{name!r}: it is no regular file; {_MADE}")
    if name.startswith("/") or ".." in name.split("/") or re.match(r"[A-Za-z]:", name):
        raise Invalid(f"{name!r:.200}: it leads out of the archive; {_MADE}")
    if name != BUNDLE and not _ENTRY.fullmatch(name):
        raise Invalid(f"{name!r:.200}: only {BUNDLE} and {TOOLS}<name>.json belong there; {_MADE}")
    if entry.flag_bits & 0x41:
        raise Invalid(f"{name!r}: it is encrypted; pack it without a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Invalid(f"{name!r}: it is packed in a way that is not read here; use the usual one (deflate)")


def _bounded(stream: IO[bytes], entry: zipfile.ZipInfo, most: int) -> bytes:
    """All of its bytes, whatever its header says of them."""
    parts: list[bytes] = []
    size = 0
    while part := stream.read(PIECE):
        size += len(part)
        if size > most:
            raise Invalid(f"{entry.filename!r}: it, or all of them together, is larger than a bundle can be")
        if size > SMALL and size > MAX_RATIO * max(entry.compress_size, 1):
            raise Invalid(f"{entry.filename!r}: so little makes that much of it that it must be a bomb")
        parts.append(part)
    return b"".join(parts)


# What it says


def _things(texts: dict[str, bytes]) -> Unpacked:
    mistakes: list[Mistake] = []
    bundle: Bundle | None = None
    try:
        bundle = _bundle(texts.pop(BUNDLE))
    except Invalid as error:
        mistakes.append(_mistake(BUNDLE, error))
    known: dict[tuple[str, str], str] = {}
    ids: dict[str, str] = {}
    tools: list[Tool] = []
    end = monotonic() + MOST_SECONDS
    for name, text in sorted(texts.items()):
        if monotonic() > end:
            raise Invalid(f"{name!r}: the archive takes more than {MOST_SECONDS:.0f} s to read; split the bundle")
        try:
            tool = _tool(text, bundle)
            _once(known, (tool.slug, tool.version), name, f"{tool.slug}@{tool.version} is")
            _once(ids, tool.id, name, "its id is that")
        except Invalid as error:
            mistakes.append(_mistake(name, error))
        else:
            tools.append(tool)
    return Unpacked(bundle, tools, mistakes)


def _bundle(text: bytes) -> Bundle:
    data = parsed(text)
    if data.get("isBuiltIn") is True:
        raise Invalid("/isBuiltIn: a bundle that is built in can't come out of an archive")
    if data.get("id") is None:
        raise Invalid("/id is missing: without it nobody can tell whether the bundle is here already")
    bundle = read_bundle_file(text, "", 0)
    if bundle.soft_deleted_at is not None:
        raise Invalid("/softDeletedAt: the bundle was deleted; bring it back before you export it")
    return bundle


def _tool(text: bytes, bundle: Bundle | None) -> Tool:
    data = parsed(text)
    if data.get("isBuiltIn") is True:
        raise Invalid("/isBuiltIn: a tool that is built in can't come out of an archive")
    home = data.get("bundleID")
    if isinstance(home, str) and bundle is not None and check_id(home, "/bundleID") != bundle.id:
        raise Invalid("/bundleID: it belongs to another bundle than that of the archive")
    return read_tool_file(text, bundle.id if bundle else "", bundle.id if bundle else "", 0)


def _once(known: dict[Any, str], key: Any, name: str, what: str) -> None:
    if key in known:
        raise Invalid(f"{what} in {known[key]} already: one of the two has to go")
    known[key] = name


def _mistake(name: str, error: Invalid) -> Mistake:
    return Mistake(message=str(error), file=name, key=error.pointer or None)
