"""Bundles as ZIP archives: `pack` and `unpack` archives, and `plan` the changes made by an import.

An archive contains `bundle.json` and `tools/<name>.json`, as in the folder of bundles. The same bundle gives the same
bytes. Archives are untrusted: their headers are not trusted, entries are read in chunks with limits, and nothing is
written to disk here. A malformed archive is refused as a whole. All mistakes inside its files are reported, and an
archive with mistakes should not be imported.
"""

import re
import stat
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import IO, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from onetool.core.errors import Mistake
from onetool.core.work import check_wanted
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent
from onetool.sources.bundles.names import check_id, new_id
from onetool.sources.bundles.store.paths import tool_file
from onetool.sources.bundles.store.text import bundle_text, parsed, read_bundle_file, read_tool_file, tool_text

MAX_BYTES = 32 * 1024**2  # bytes of an archive
MAX_TOTAL = 64 * 1024**2  # bytes, uncompressed
MAX_ENTRY = 8 * 1024**2
MAX_ENTRIES = 10_000
MAX_RATIO = 200  # compression of an entry; repetitive JSON reaches 50
SMALL = 64 * 1024  # bytes below which any ratio is accepted
PIECE = 256 * 1024
MAX_SECONDS = 60.0

BUNDLE = "bundle.json"
TOOLS = "tools/"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date in the ZIP format
_ENTRY = re.compile(r"bundle\.json|tools/[^/\\]{1,250}\.json")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RuntimeError)
_HEADER = b"PK\x01\x02"  # of an entry in the central directory
_END = b"PK\x05\x06"  # the start of the last 22 bytes
_HINT = "create it with `onetool bundles export`, or add only bundle.json and the folder tools/"


class Unpacked(NamedTuple):
    bundle: Bundle | None  # None if its file has mistakes
    tools: list[Tool]
    mistakes: list[Mistake]  # `file` is the name of the entry


def pack(bundle: Bundle, tools: Iterable[Tool]) -> bytes:
    """Return a bundle's archive. Raises InvalidError for a built-in bundle, or a tool that couldn't be read again."""
    if bundle.is_built_in:
        why = "built in" if bundle.source is None else "derived from the config"
        raise InvalidError(f"the bundle {bundle.slug} is {why}, so it can't be exported")
    texts = {BUNDLE: bundle_text(bundle)}
    for tool in tools:
        texts[tool_file("", tool.slug, tool.version).removeprefix("/")] = tool_text(tool, is_kept=True)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3  # Unix, on all systems
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, texts[name])
    return buffer.getvalue()


def unpack(data: bytes | Path) -> Unpacked:
    """Read an archive. Raises InvalidError if the archive is malformed or hostile."""
    if isinstance(data, bytes):
        raw = data
    else:
        try:
            with data.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise InvalidError(f"{data} can't be read: {error.strerror}") from None
        if len(raw) > MAX_BYTES:
            raise InvalidError(f"{data} is larger than {MAX_BYTES // 1024**2} MiB, the limit for archives")
    if raw.count(_HEADER) > MAX_ENTRIES:
        raise InvalidError(f"the archive has more than {MAX_ENTRIES:,} entries")
    try:
        with zipfile.ZipFile(BytesIO(raw)) as file:
            entries = file.infolist()
            if raw[-22:-18] != _END or min((entry.header_offset for entry in entries), default=0):
                raise InvalidError(f"the archive has a comment, or other data before or after it; {_HINT}")
            if int.from_bytes(raw[-12:-10], "little") != len(entries):
                raise InvalidError(f"the archive's number of entries is wrong; {_HINT}")
            return _read_texts(_texts(file))
    except _DAMAGED as error:
        raise InvalidError(f"the file is not a ZIP archive, or is damaged ({error}); {_HINT}") from None


# The form of an archive


def _texts(file: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the bytes of every entry, if all of them are allowed."""
    entries = [entry for entry in file.infolist() if entry.filename != TOOLS or entry.file_size]
    seen: dict[str, str] = {}
    for entry in entries:
        name = entry.orig_filename  # including anything that zipfile would cut off
        if name != entry.filename or not name.isprintable() or not _ENTRY.fullmatch(name):
            raise InvalidError(f"{name!r:.200}: an archive may contain only {BUNDLE} and {TOOLS}<name>.json; {_HINT}")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InvalidError(f"{name!r}: not a regular file; {_HINT}")
        if entry.flag_bits & 0x41:
            raise InvalidError(f"{name!r}: the entry is encrypted; create the archive without a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidError(f"{name!r}: unsupported compression method; use deflate")
        folded = unicodedata.normalize("NFC", entry.filename).casefold()
        if folded in seen:
            raise InvalidError(f"{entry.filename!r}: the same name as {seen[folded]!r} on some systems")
        seen[folded] = entry.filename
    if BUNDLE not in seen:
        raise InvalidError(f"the archive has no {BUNDLE} at its top; {_HINT}")
    texts: dict[str, bytes] = {}
    left = MAX_TOTAL
    for entry in entries:
        with file.open(entry) as stream:
            texts[entry.filename] = _bounded(stream, entry, min(left, MAX_ENTRY))
        left -= len(texts[entry.filename])
    return texts


def _bounded(stream: IO[bytes], entry: zipfile.ZipInfo, limit: int) -> bytes:
    """Read all bytes of an entry. The limit counts the bytes read instead of trusting the header."""
    parts: list[bytes] = []
    size = 0
    while part := stream.read(PIECE):
        size += len(part)
        if size > limit:
            raise InvalidError(f"{entry.filename!r}: too large, or all entries together are too large")
        if size > SMALL and size > MAX_RATIO * max(entry.compress_size, 1):
            raise InvalidError(f"{entry.filename!r}: the compression ratio is too high (a ZIP bomb)")
        parts.append(part)
    return b"".join(parts)


# The content of an archive


def _read_texts(texts: dict[str, bytes]) -> Unpacked:
    mistakes: list[Mistake] = []
    bundle: Bundle | None = None
    try:
        bundle = _bundle(texts.pop(BUNDLE))
    except InvalidError as error:
        mistakes.append(_mistake(BUNDLE, error))
    known: dict[tuple[str, str], str] = {}
    ids: dict[str, str] = {}
    tools: list[Tool] = []
    end = monotonic() + MAX_SECONDS
    for name, text in sorted(texts.items()):
        check_wanted()
        if monotonic() > end:
            raise InvalidError(f"{name!r}: reading the archive takes more than {MAX_SECONDS:.0f} s; split the bundle")
        try:
            tool = _tool(text, bundle)
            _refuse_duplicate(known, (tool.slug, tool.version), name, f"{tool.slug}@{tool.version}")
            _refuse_duplicate(ids, tool.id, name, f"the id {tool.id}")
        except InvalidError as error:
            mistakes.append(_mistake(name, error))
        else:
            tools.append(tool)
    return Unpacked(bundle, tools, mistakes)


def _bundle(text: bytes) -> Bundle:
    data = parsed(text)
    if data.get("isBuiltIn") is True:
        raise invalid_at("/isBuiltIn", "an archive can't contain a built-in bundle")
    if data.get("id") is None:
        raise invalid_at("/id", "it is missing: it tells whether the bundle already exists")
    bundle = read_bundle_file(text, "", 0)
    if bundle.soft_deleted_at is not None:
        raise invalid_at("/softDeletedAt", "the bundle was deleted; restore it before exporting")
    return bundle


def _tool(text: bytes, bundle: Bundle | None) -> Tool:
    data = parsed(text)
    if data.get("isBuiltIn") is True:
        raise invalid_at("/isBuiltIn", "an archive can't contain a built-in tool")
    home = data.get("bundleID")
    if isinstance(home, str) and bundle is not None and check_id(home, "/bundleID") != bundle.id:
        raise invalid_at("/bundleID", "the tool belongs to another bundle than the archive's")
    return read_tool_file(text, bundle.id if bundle else "", bundle.id if bundle else "", 0)


def _refuse_duplicate(known: dict[Any, str], key: Any, name: str, item: str) -> None:
    if key in known:
        raise InvalidError(f"{item} is also in {known[key]}: remove one of the two")
    known[key] = name


def _mistake(name: str, error: InvalidError) -> Mistake:
    return Mistake(message=str(error), file=name)


# The plan of an import

What = Literal["new", "same", "changed", "clash", "kept"]


class ImportRow(NamedTuple):
    """A row of a plan: a tool, or the bundle itself (without a version)."""

    slug: str
    version: str
    what: What  # "kept": not in the archive, so it stays
    detail: str = ""


class ImportPlan(NamedTuple):
    bundle: Bundle  # after the import; with a new id for `as_new`
    rows: list[ImportRow]
    refused: list[str]  # why the import is impossible; empty if possible
    new_tools: list[Tool]  # to be stored
    is_new: bool  # whether the bundle is new

    @property
    def changes(self) -> bool:
        return any(row.what in ("new", "changed") for row in self.rows)


def plan(
    unpacked: Unpacked,
    existing_bundle: Bundle | None,
    existing_tools: Iterable[Tool],
    as_new: bool = False,
    now: Callable[[], float] = time.time,
) -> ImportPlan:
    """Compare an archive with the stored bundle of the same id. With `as_new`, plan a separate bundle."""
    if unpacked.bundle is None:
        raise InvalidError("the archive's bundle can't be used: " + "; ".join(map(str, unpacked.mistakes[:3])))
    refused = [str(mistake) for mistake in unpacked.mistakes]
    if as_new or existing_bundle is None:
        bundle, tools = unpacked.bundle, unpacked.tools
        if as_new:
            bundle = replace(bundle, id=new_id(now()))
            tools = [replace(tool, id=new_id(now()), bundle_id=bundle.id) for tool in tools]
        rows = [ImportRow(bundle.slug, "", "new"), *(ImportRow(tool.slug, tool.version, "new") for tool in tools)]
        return ImportPlan(bundle, rows, refused, tools, is_new=True)
    return _plan_merge(unpacked.bundle, unpacked.tools, existing_bundle, list(existing_tools), refused)


def _plan_merge(
    bundle: Bundle, tools: list[Tool], here: Bundle, tools_here: list[Tool], refused: list[str]
) -> ImportPlan:
    known = {(tool.slug, tool.version): tool for tool in tools_here}
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(Bundle)}
    differing = [
        name for name in ("slug", "display_name", "description") if getattr(bundle, name) != getattr(here, name)
    ]
    if here.soft_deleted_at is not None:
        rows = [ImportRow(bundle.slug, "", "changed", "was deleted here and is restored")]
    elif differing:
        rows = [ImportRow(bundle.slug, "", "changed", f"differs: {', '.join(keys[name] for name in differing)}")]
    else:
        rows = [ImportRow(bundle.slug, "", "same")]
    new: list[Tool] = []
    for tool in tools:
        stored = known.pop((tool.slug, tool.version), None)
        rows.append(_tool_row(tool, stored))
        if stored is None:
            new.append(tool)
    rows += [ImportRow(slug, version, "kept", "not in the archive") for slug, version in known]
    refused = [*refused, *_obstacles(here, rows, bool(new))]
    content = {name: getattr(bundle, name) for name in BundleContent.__struct_fields__}
    return ImportPlan(replace(here, **content | {"is_enabled": here.is_enabled}), rows, refused, new, is_new=False)


def _tool_row(tool: Tool, here: Tool | None) -> ImportRow:
    if here is None:
        return ImportRow(tool.slug, tool.version, "new")
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(ToolContent)}
    differing = [key for name, key in fields.items() if getattr(tool, name) != getattr(here, name)]
    if differing == ["isEnabled"] or not differing:
        detail = f"stays {'enabled' if here.is_enabled else 'disabled'}, as it is here" if differing else ""
        return ImportRow(tool.slug, tool.version, "same", detail)
    return ImportRow(tool.slug, tool.version, "clash", f"differs: {', '.join(differing)}")


def _obstacles(here: Bundle, rows: list[ImportRow], adds: bool) -> list[str]:
    if here.is_built_in:
        return [f"the bundle {here.slug} is built in and can't be changed; import it as a new bundle"]
    clashes = [f"{row.slug}@{row.version}" for row in rows if row.what == "clash"]
    if clashes:
        few = ", ".join(clashes[:5]) + (f" and {len(clashes) - 5} more" if len(clashes) > 5 else "")
        return [f"{few}: this version already exists with different content; import as a new bundle, or remove it here"]
    if adds and not here.is_enabled:
        return [f"the bundle {here.slug} is disabled, so no tools can be added; enable it first"]
    return []


__all__ = ["ImportPlan", "ImportRow", "Unpacked", "pack", "plan", "unpack"]
