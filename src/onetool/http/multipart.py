"""Bodies with files: `multipart/form-data` (RFC 7578), and a body that is one file.

A field is a string with placeholders, or `{"file": "${photo}"}`. Values can't end their part or add a header to it: the
boundary is random, and names are escaped as browsers do (`"`, `\\` and line ends as %XX).
"""

from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any, NamedTuple

from onetool.http.definition import DEFAULT_ENCODING, Encoding, Request, below
from onetool.http.files import FileContent
from onetool.http.placeholders import KnownNames, Placeholder, TemplateError, TemplateText, Values, as_text, parse_text
from onetool.http.template_parts import (
    FieldChecks,
    FilledBody,
    check_encodings,
    is_nested,
    json_bytes,
    one_line,
    pair_value,
)

MULTIPART = "multipart/form-data"
POINTER = "/request/multipart"
FILE_POINTER = "/request/bodyFile"

_ESCAPES = str.maketrans({sign: f"%{ord(sign):02X}" for sign in '"\\\r\n\0'})


class BodyFile:
    def __init__(self, text: str, arguments: KnownNames) -> None:
        self._file = _file_argument(text, arguments, FILE_POINTER)
        self.placeholders = self.files = (self._file,)

    def fill(self, values: Values) -> FilledBody | None:
        if (value := values.get(self._file.name)) is None:
            return None
        file = _content(self._file, value)
        return FilledBody(file.kind, file.data)


class MultipartTemplate:
    """The fields of a multipart body, in order. A field with an absent value is left out."""

    def __init__(self, request: Request, arguments: KnownNames) -> None:
        fields, encodings = request.multipart or {}, request.body_encoding
        check_encodings(fields, encodings, "/request/body")
        self._fields: list[_Field] = []
        for key, value in fields.items():
            place = below(POINTER, key)
            name = parse_text(key, (), place)
            if name.placeholders:
                raise TemplateError("The name of a field can't have placeholders", place)
            encoding = encodings.get(key, DEFAULT_ENCODING)
            items = value if isinstance(value, list | tuple) else [value]
            self._fields += [
                _field(name.literal, item, encoding, arguments, place) for item in items if item is not None
            ]
        self._names = {field.name for field in self._fields}
        self.placeholders = tuple(placeholder for field in self._fields for placeholder in field.placeholders)
        self.files = tuple(field.file for field in self._fields if field.file is not None)

    def fill(self, values: Values) -> FilledBody | None:
        """Return the body, or None without a part: servers reject a multipart body that has none."""
        boundary = token_hex(16)
        checks = FieldChecks(self._names, values)
        pieces: list[bytes] = []
        for field in self._fields:
            for part in field.fill(values, checks):
                if (alone := field.value.alone) is not None:
                    checks.count(len(part.name) + len(part.data), alone)
                pieces += [f"--{boundary}\r\n{part.head}\r\n\r\n".encode(), part.data, b"\r\n"]
        if not pieces:
            return None
        pieces.append(f"--{boundary}--\r\n".encode())
        return FilledBody(f"{MULTIPART}; boundary={boundary}", b"".join(pieces))


class _Part(NamedTuple):
    name: str
    data: bytes
    kind: str | None = None
    filename: str | None = None

    @property
    def head(self) -> str:
        head = f'Content-Disposition: form-data; name="{self.name.translate(_ESCAPES)}"'
        if self.filename is not None:
            head += f'; filename="{self.filename.translate(_ESCAPES)}"'
        return f"{head}\r\nContent-Type: {self.kind}" if self.kind else head


class _Field(NamedTuple):
    name: str
    value: TemplateText
    encoding: Encoding
    file: Placeholder | None = None
    filename: TemplateText | None = None

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return self.value.placeholders + (() if self.filename is None else self.filename.placeholders)

    def fill(self, values: Values, checks: FieldChecks) -> Iterator[_Part]:
        kind, alone = self.encoding.content_type, self.value.alone
        value = None if alone is None else values.get(alone.name)
        is_list = isinstance(value, list | tuple)
        if self.file is not None:
            filename = None if self.filename is None else self.filename.fill(values, one_line)
            for item in value if is_list else () if value is None else (value,):
                content = _content(self.file, item)
                yield _Part(self.name, content.data, kind or content.kind, filename or content.name)
        elif alone is None:
            text = self.value.fill(values, lambda _, text: text)
            if text is not None:
                yield _Part(self.name, text.encode(), kind)
        elif isinstance(value, str | None):
            if value is not None:
                yield _Part(self.name, as_text(alone, value).encode(), kind)
        elif self.encoding.style is None and (isinstance(value, dict) or (is_list and is_nested(value))):
            for item in value if is_list else (value,):
                yield _Part(self.name, json_bytes(item), kind or "application/json")
        else:
            for name, text in checks.fields(self.name, value, self.encoding, alone):
                yield _Part(name, text.encode(), kind)


def _field(name: str, value: Any, encoding: Encoding, arguments: KnownNames, pointer: str) -> _Field:
    if not isinstance(value, Mapping):
        return _Field(name, pair_value(value, arguments, pointer, str), encoding)
    is_file = "file" in value and value.keys() <= {"file", "filename"}
    if not is_file or not all(isinstance(text, str) for text in value.values()):
        raise TemplateError('A field must be a string, or a file: {"file": "${photo}", "filename": "a.png"}', pointer)
    file = _file_argument(value["file"], arguments, below(pointer, "file"))
    filename = value.get("filename")
    named = None if filename is None else parse_text(filename, arguments, below(pointer, "filename"))
    return _Field(name, TemplateText([file]), encoding, file, named)


def _file_argument(text: str, arguments: KnownNames, pointer: str) -> Placeholder:
    """Return the argument that names a file.

    Files are chosen only by callers, never by secrets or answers from servers.
    """
    placeholder = parse_text(text, arguments, pointer).alone
    if placeholder is None or placeholder.is_secret or placeholder.step is not None:
        raise TemplateError("A file must be an argument of the tool: write ${name}, and add it to argSchema", pointer)
    return placeholder


def _content(placeholder: Placeholder, value: Any) -> FileContent:
    if not isinstance(value, FileContent):
        raise placeholder.bad("is not a file")
    return value
