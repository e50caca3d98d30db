"""Reads a config file and the files that it includes as plain data with the place of every value.

A value that two files set is refused, not overridden. One common notation that YAML rejects is repaired where the
parser stopped: inside braces, as in `{token: ${NAME}}`, the `{` of an unquoted placeholder starts a mapping.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_origin

import msgspec

from onetool.config.check import BAD, convert, fields_of, report_mismatch, unknown_key
from onetool.config.findings import Findings, Piece, Places
from onetool.config.model import Keys
from onetool.core.errors import Mistake
from onetool.core.text import line_of
from onetool.core.yaml import YamlDocument, YamlError, child, read

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 10  # of files that include each other
MAX_REPAIRS = 200
REPAIR_BUDGET = 8 * 1024 * 1024  # characters that repairs may parse again
ALSO = {"mcpServers": "servers"}  # the word of other clients, so that text pasted from them works
_JOINED: dict[Any, type] = {tuple: list, dict: dict}  # the kinds of keys that several files may set

VARIABLE = r"[A-Za-z_][A-Za-z0-9_.-]*"
FILE = "file:"  # prefix of a placeholder for the content of a file: ${file:/run/secrets/key}
_NAMED = VARIABLE + "|" + FILE + r"[^{}\n]{1,1000}"
PLACEHOLDER = re.compile(r"\$\{(" + VARIABLE + r")\}")
FILE_PLACEHOLDER = re.compile(r"\$\{" + FILE + r"([^{}\n]{1,1000})\}")
ANY_PLACEHOLDER = re.compile(r"\$\{(" + _NAMED + r")\}")
_BEFORE = re.compile(r"""(?:[\[{,]|[:?][ \t]|["']:|^)[ \t]*""")  # what may precede an unquoted string
_AFTER = re.compile(r"(?:\$\{(?:" + _NAMED + r")\}|:(?=[^\s,\[\]{}])|(?<!\s)#|[^\s:#,\[\]{}]|[ \t]+(?=[^\s#,\[\]{}]))*")

# The characters that YAML forbids. A class of the allowed characters would take milliseconds to compile.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")

MayRead = Callable[[Path], bool]


class ConfigFileError(Exception):
    """A file or a line in it can't be used. Without a line, the mistake is reported where the file was named."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


def read_text(path: Path) -> str:
    """Return the file as text: UTF-8, with or without a byte order mark, and of limited size."""
    try:
        if not path.is_file():  # checked first, because opening a pipe or a device would block
            path.stat()
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise ConfigFileError(f"{path} is {kind}: expected a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigFileError(f"the file {path} does not exist") from None
    except PermissionError:
        raise ConfigFileError(f"no permission to read {path}", hint="check who owns it, and its mode: ls -l") from None
    except OSError as error:
        raise ConfigFileError(f"can't read {path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise ConfigFileError(f"{path} is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigFileError("the file is not UTF-8 text", line=line_of(error), hint="save it as UTF-8") from None
    found = _UNPRINTABLE.search(text)
    if found:
        where = f"column {found.start() - text.rfind(chr(10), 0, found.start())}"
        message = f"the character U+{ord(found[0]):04X} in {where} is not allowed in YAML"
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigFileError(message, line=line, hint="remove it, or write it as an escape in quotes")
    return text


def read_yaml(path: Path) -> YamlDocument:
    """Read a file. Raises ConfigFileError."""
    return parse(read_text(path))


def parse(text: str) -> YamlDocument:
    """Read the text of a file. Raises ConfigFileError."""
    repairs = min(text.count("${"), MAX_REPAIRS, REPAIR_BUDGET // (len(text) or 1))
    try:
        return read(text, repair=_with_quotes, repairs=repairs)
    except YamlError as error:
        raise ConfigFileError(error.message, line=error.line, hint=error.hint) from None


def mistake_of(refused: ConfigFileError, path: Path, entry: Mistake | None = None) -> Mistake:
    """Return the mistake at its line in the file; for a file that can't be read, at the `entry` that names it."""
    at = entry if entry is not None and refused.line is None else Mistake(message="", file=str(path), line=refused.line)
    return msgspec.structs.replace(at, message=refused.message, hint=refused.hint)


def data_of(text: str) -> Any:
    """Return the data of a text. Raises ConfigFileError, even for a key that is set twice."""
    document = parse(text)
    for one in document.problems:
        raise ConfigFileError(one.message, line=one.line, hint=one.hint)
    return document.data


def _with_quotes(text: str, index: int) -> str | None:
    """Return the text with quotes around the string whose `${NAME}` stopped the parser at the index, if so."""
    dollar = index - 1
    if dollar < 0 or not ANY_PLACEHOLDER.match(text, dollar):
        return None
    line = text.rfind("\n", 0, dollar) + 1
    start = line + max(before.end() for before in _BEFORE.finditer(text[line:dollar]))
    after = _AFTER.match(text, dollar)
    end = after.end() if after else dollar
    quoted = text[start:end].replace("'", "''")
    return f"{text[:start]}'{quoted}'{text[end:]}"


# Several files


class Written(msgspec.Struct, kw_only=True):
    """The data of a config as written, with its places, and the files that it was read from."""

    data: dict[str, Any]
    places: Places
    files: tuple[Path, ...]

    @property
    def included(self) -> tuple[Path, ...]:
        """The included files."""
        return self.files[1:]


def read_config(path: Path, findings: Findings, may_read: MayRead = lambda _: True) -> Written:
    """Read a config and the files that it includes. `may_read` is called before each file is opened.

    The findings get the places of the merged data.
    """
    files = _Files(findings, may_read)
    files.add(path)
    return Written(data=files.data, places=findings.places, files=tuple(files.paths))


class _Files:
    """The files of a config. Each is read once, an including file before the files that it includes."""

    def __init__(self, findings: Findings, may_read: MayRead) -> None:
        self.findings = findings
        self.may_read = may_read
        self.data: dict[str, Any] = {}
        self.paths: list[Path] = []
        self._identities: set[str] = set()  # of the files read so far

    def add(self, path: Path, entry: Mistake | None = None, trail: tuple[str, ...] = ()) -> None:
        """Read a file and its includes. `entry` is the place that named it, `trail` the chain of including files."""
        identity = os.path.realpath(path)
        if entry and identity in trail:
            circle = " -> ".join([*trail[trail.index(identity) :], identity])
            self._error(entry, f"circular include: {circle}", "remove one of the includes")
        elif entry and len(trail) > MAX_DEPTH:
            self._error(entry, f"includes are nested more than {MAX_DEPTH} files deep", "include the file directly")
        elif identity not in self._identities and self.may_read(path):
            self._identities.add(identity)
            self.paths.append(path)
            try:
                document = read_yaml(path)
            except ConfigFileError as refused:
                self.findings.errors.append(mistake_of(refused, path, entry))
                document = YamlDocument()
            own = Findings.of(path, document)
            if len(self.paths) == 1:
                self.findings.places = own.places
            for mistake in own.errors:
                is_of_tool = (mistake.key or "").startswith("tools[")
                (self.findings.of_tools if is_of_tool else self.findings.errors).append(mistake)
            own.errors.clear()
            included: Any = ()
            if isinstance(document.data, dict):
                self._merge(document.data, str(path), document.lines, own)
                if entries := document.data.get("include"):
                    included = convert(entries, tuple[Path, ...], "include", own)
            elif document.data is not None:
                report_mismatch(document.data, dict[str, Any], "", own)
            self.findings.errors += own.errors
            self.findings.warnings += own.warnings
            for at, place in enumerate(() if included is BAD else included):
                self.add(Path(os.path.normpath(place)), own.mistake(f"include[{at}]", ""), (*trail, identity))

    def _error(self, at: Mistake, message: str, hint: str | None) -> None:
        self.findings.errors.append(msgspec.structs.replace(at, message=message, hint=hint))

    def _merge(self, data: dict[str, Any], file: str, lines: Mapping[str, int], own: Findings) -> None:
        """Merge the data of a file: lists are joined, mappings united, and everything else may be set once."""
        for written, value in data.items():
            key = ALSO.get(written, written)
            piece = Piece(file, child("", written), lines)
            if key not in fields_of(Keys):
                unknown_key(written, piece.own, Keys, own)
            elif key == "include":
                continue
            elif key not in self.data:
                self.data[key] = value
                if len(self.paths) > 1 or written != key:
                    self.findings.places.put(key, piece)
            else:
                self._join(key, value, piece, own)

    def _join(self, key: str, value: Any, piece: Piece, own: Findings) -> None:
        """Join the value of a key with that of an earlier file, or of another spelling of the key."""
        there, places, wanted = self.data[key], self.findings.places, fields_of(Keys)[key].type
        kind = _JOINED.get(get_origin(wanted))
        if kind is not None and not isinstance(there, kind):  # empty, or a mistake
            if there is not None:
                report_mismatch(there, wanted, key, self.findings)
            self.data[key] = value
            places.put(key, piece)
        elif kind is not None and not isinstance(value, kind):
            if value is not None:
                report_mismatch(value, wanted, piece.own, own)
        elif kind is list:
            for at in range(len(value)):
                places.put(f"{key}[{len(there) + at}]", Piece(piece.file, f"{piece.own}[{at}]", piece.lines))
            self.data[key] = [*there, *value]
        elif kind is dict:
            self.data[key] = {**there, **{name: entry for name, entry in value.items() if name not in there}}
            for name in value:
                entry = Piece(piece.file, child(piece.own, name), piece.lines)
                if name in there:
                    self._set_twice(child(key, name), entry)
                else:
                    places.put(child(key, name), entry)
        else:
            self._set_twice(key, piece)

    def _set_twice(self, path: str, again: Piece) -> None:
        first = self.findings.places.at(path)
        line = again.lines.get(again.own, 1)
        where = "two files" if first.file != again.file else "two places"
        message = f"set in {where}, {first.file}:{first.line} and {again.file}:{line}"
        mistake = Mistake(message=message, file=again.file, line=line, key=again.own, hint="remove one of them")
        self.findings.errors.append(mistake)
