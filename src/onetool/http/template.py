"""`RequestTemplate` builds the request of one call from a tool's `httpImpl.request`. It sends nothing.

The template is parsed once, when the tool is defined, which fixes where values go and how they are escaped. Scheme and
port are literal, and so is the host, except for labels that are placeholders (`https://${region}.example.com`). A
placeholder for the whole host (`https://${host}/x`) may contain several labels. `allowed_hosts` decides whether a
call's URL may be called.

A body is a form if Content-Type says so. Otherwise data, or a text that reads as a JSON object or array, is JSON, with
`${name}` inside strings or bare. In any other text, values are inserted unchanged, and escaped in XML.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from html import escape
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from onetool.core.errors import BadArguments
from onetool.core.redaction import sounds_secret
from onetool.http.definition import DEFAULT_REQUEST_BYTES, ApiKey, Encoding, Request, below
from onetool.http.errors import RequestRefusedError
from onetool.http.multipart import POINTER, BodyFile, MultipartTemplate
from onetool.http.placeholders import (
    MARK,
    KnownNames,
    Lookup,
    Placeholder,
    StepNames,
    TemplateError,
    TemplateErrors,
    TemplateText,
    Values,
    gather,
    parse_text,
    refused_at,
    unmarked,
)
from onetool.http.template_parts import (
    HEADERS_POINTER,
    FilledBody,
    HeaderTemplates,
    PairTemplate,
    PairTemplates,
    PathTemplate,
    check_encodings,
    json_bytes,
    named_pairs,
    written_pairs,
)
from onetool.http.url import HttpRequest, Url, as_target, normal_host, read_authority, split

BODY_POINTER = "/request/body"
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"

_ABSENT: Any = object()
_STRING_OR_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?<!\$)\$+\{[^{}]{0,200}\}', re.DOTALL)


class BodyTemplate(NamedTuple):
    """A body without files. `make` returns None for no body; a Content-Type header overrides `content_type`."""

    content_type: str
    make: Callable[[Values], bytes | None]
    placeholders: tuple[Placeholder, ...]
    files: tuple[Placeholder, ...] = ()

    def fill(self, values: Values) -> FilledBody | None:
        data = self.make(values)
        return None if data is None else FilledBody(self.content_type, data)


class BodyOrMultipart:
    """A multipart body if a file is given, else the other body."""

    def __init__(self, body: "Payload", multipart: MultipartTemplate) -> None:
        self._body = body
        self._multipart = multipart
        self.files = multipart.files
        self.placeholders = (*body.placeholders, *multipart.placeholders)

    def fill(self, values: Values) -> FilledBody | None:
        has_file = any(values.get(file.name) is not None for file in self.files)
        chosen, other = (self._multipart, self._body) if has_file else (self._body, self._multipart)
        for placeholder in other.placeholders:
            is_argument = not placeholder.is_secret and placeholder.step is None
            if is_argument and placeholder not in chosen.placeholders and values.get(placeholder.name) is not None:
                raise placeholder.bad("can't be sent with a file" if has_file else "is only sent with a file")
        return chosen.fill(values)


Payload = BodyTemplate | MultipartTemplate | BodyOrMultipart | BodyFile


def body_template(request: Request, content_type: str | None, arguments: KnownNames) -> Payload | None:
    """Parse the body of a request. `content_type` is its header."""
    if request.multipart is not None:
        if content_type is not None:
            raise TemplateError("Remove Content-Type: it is set with the boundary between the parts", HEADERS_POINTER)
        multipart = MultipartTemplate(request, arguments)
        other = body_template(replace(request, multipart=None, body_encoding={}), None, arguments)
        if other is None:
            return multipart
        if not multipart.files:
            raise TemplateError("`multipart` without a file can't be used with `body`", POINTER)
        return BodyOrMultipart(other, multipart)
    body, encodings = request.body, request.body_encoding
    no_form = TemplateError("Only the fields of a form can have an encoding", "/request/bodyEncoding")
    if request.body_file is not None:
        if encodings:
            raise no_form
        return BodyFile(request.body_file, arguments)
    if body is None:
        return None
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise TemplateError("Use `multipart`, with the fields, instead of `body` for a multipart body", BODY_POINTER)
    if kind == FORM:
        return _form(body, arguments, encodings)
    if encodings:
        raise no_form
    is_json = kind == JSON or kind.endswith("+json")
    if not isinstance(body, str):
        return _json(body, arguments)
    data = _json_in(body)
    if data is not _ABSENT and (is_json or isinstance(data, dict | list)) and not kind.endswith("xml"):
        return _json(data, arguments)
    if is_json:
        raise TemplateError("is not JSON, although Content-Type says so", BODY_POINTER)
    several = "json" in kind and parse_text(body, arguments, BODY_POINTER).alone is None
    if several or (not kind and _goes_on_after_json(body)):
        how = 'make the whole body in a script, and pass it as one argument: "${lines}"'
        raise TemplateError(
            f"is more than one JSON value: {how}. Values are inserted unchanged in text/plain", BODY_POINTER
        )
    return _text_body(body, kind, arguments)


def _form(body: Any, arguments: Collection[str], encodings: Mapping[str, Encoding]) -> BodyTemplate:
    if isinstance(body, str):
        check_encodings(body, encodings, BODY_POINTER)
        text = parse_text(body, arguments, BODY_POINTER)
        with refused_at(BODY_POINTER):
            pairs = written_pairs(text.marked, iter(text.placeholders))
    elif isinstance(body, dict):
        pairs = named_pairs(body, arguments, BODY_POINTER, encodings)
    else:
        raise TemplateError("a form must be a string such as a=1&b=2, or an object", BODY_POINTER)
    form = PairTemplates(pairs)
    placeholders = tuple(placeholder for pair in pairs for placeholder in pair.placeholders)
    return BodyTemplate(FORM, lambda values: form.fill(values).encode("ascii"), placeholders)


def _text_body(body: str, kind: str, arguments: Mapping[str, Any]) -> BodyTemplate:
    text = parse_text(body, arguments, BODY_POINTER)
    if not kind and text.alone is not None and not text.alone.is_secret:
        schema = arguments.get(text.alone.name)
        if not isinstance(schema, Mapping) or schema.get("type") != "string":
            return _json(body, arguments)
    escape_value = (lambda _, value: escape(value, quote=True)) if kind.endswith("xml") else _unchanged

    def fill(values: Values) -> bytes | None:
        if text.alone is not None and values.get(text.alone.name) is None:
            return None
        return text.fill_whole(values, escape_value, "the body").encode()

    return BodyTemplate(PLAIN, fill, text.placeholders)


def _json(body: Any, arguments: Collection[str]) -> BodyTemplate:
    placeholders: list[Placeholder] = []
    template = _value_template(body, arguments, BODY_POINTER, placeholders)
    if not placeholders:
        fixed = json_bytes(template)
        return BodyTemplate(JSON, lambda values: fixed, ())

    def fill(values: Values) -> bytes | None:
        value = _fill_value(template, values)
        return None if value is _ABSENT else json_bytes(value)

    return BodyTemplate(JSON, fill, tuple(placeholders))


class _ListTemplate(list[Any]):
    """A list with placeholders in its items."""


class _ObjectTemplate(list[tuple[str | TemplateText, Any]]):
    """The names and values of an object with placeholders in them."""


def _value_template(value: Any, arguments: Collection[str], pointer: str, placeholders: list[Placeholder]) -> Any:
    """Return the template of a value, or the value if it is constant. Adds its placeholders to the list."""
    before = len(placeholders)
    if isinstance(value, str):
        text = parse_text(value, arguments, pointer)
        placeholders += text.placeholders
        return text if text.placeholders else text.literal
    if isinstance(value, Mapping):
        template = _ObjectTemplate()
        for name, item in value.items():
            place = below(pointer, name)
            key = parse_text(name, arguments, place)
            placeholders += key.placeholders
            inner = _value_template(item, arguments, place, placeholders)
            template.append((key if key.placeholders else key.literal, inner))
    elif isinstance(value, list | tuple):
        template = _ListTemplate(
            [_value_template(item, arguments, below(pointer, at), placeholders) for at, item in enumerate(value)]
        )
    else:
        return value
    return template if len(placeholders) > before else _fill_value(template, Values())


def _fill_value(template: Any, values: Values) -> Any:
    """Return a value of the body in one call; _ABSENT if it needs an absent argument."""
    if isinstance(template, TemplateText):
        if (alone := template.alone) is None:
            filled = template.fill(values, _unchanged)
            return _ABSENT if filled is None else filled
        value = values.get(alone.name, _ABSENT)
        if isinstance(value, float) and not isfinite(value):
            raise alone.bad("is not a valid JSON number")
        if isinstance(value, list | tuple | dict):
            value = msgspec.Raw(json_bytes(value))
        if isinstance(value, str | msgspec.Raw):
            values.count(len(value), alone)
        return value
    if isinstance(template, _ListTemplate):
        return [item for inner in template if (item := _fill_value(inner, values)) is not _ABSENT]
    if not isinstance(template, _ObjectTemplate):
        return template
    members: dict[str, Any] = {}
    for name, inner in template:
        key = name if isinstance(name, str) else name.fill(values, _unchanged)
        item = _fill_value(inner, values)
        if key is None or item is _ABSENT:
            continue
        if key in members:  # a value must not replace a member of the template
            raise BadArguments(f"the body would have the member {key!r} twice")
        members[key] = item
    return members


def _json_in(text: str) -> Any:
    """Return the JSON of a text after quoting its bare placeholders; _ABSENT if it isn't JSON."""
    try:
        return msgspec.json.decode(_quoted(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _ABSENT


def _quoted(text: str) -> str:
    return _STRING_OR_PLACEHOLDER.sub(lambda found: found[0] if found[0][0] == '"' else f'"{found[0]}"', text)


def _goes_on_after_json(text: str) -> bool:
    """Return whether a text begins with a JSON object or array that contains a placeholder."""
    quoted = _quoted(text.lstrip())
    try:
        end = json.JSONDecoder().raw_decode(quoted)[1] if quoted[:1] in ("{", "[") else 0
    except (ValueError, RecursionError):
        return False
    return "${" in quoted[:end]


def _unchanged(placeholder: Placeholder, value: str) -> str:
    return value


# The template of a request

URL_POINTER = "/request/urlTemplate"
_LABEL = re.compile(r"[A-Za-z0-9-]{1,63}")
_LABELS = re.compile(r"[A-Za-z0-9.-]{1,253}")


class RequestTemplate:
    """The template of a request. Raises TemplateError if it can never work. `steps` are the tool's steps, if any."""

    def __init__(
        self, request: Request, arg_schema: Any, steps: StepNames | None = None, max_bytes: int = DEFAULT_REQUEST_BYTES
    ) -> None:
        arguments = KnownNames(arg_schema, steps)
        self.method = request.method
        self._idempotent = request.idempotent
        self._max_bytes = max_bytes
        errors, pairs = TemplateErrors(), list[PairTemplate]()
        with errors.part():
            pairs += self._read_url(parse_text(request.url_template, arguments, URL_POINTER))
        with errors.part():
            pairs += named_pairs(request.query, arguments, "/request/query", request.query_encoding)
        with errors.part():
            self._fields = HeaderTemplates(request.headers, arguments)
            self._payload = body_template(request, self._fields.content_type, arguments)
        errors.raise_all()
        # The URL of every request up to the host; None if the host depends on the call.
        self.fixed_url = Url(self._scheme, self._host, self._port, "/") if isinstance(self._host, str) else None
        auth = request.auth
        signed = [auth.name] if isinstance(auth, ApiKey) and auth.place == "query" else []
        self._query = PairTemplates(pairs, taken=signed)
        is_fixed = not any(part.placeholders for part in (*self._parts[1:], *pairs))
        self._fixed_target = self._target(Values()) if is_fixed else None
        placeholders = [
            placeholder
            for part in (*self._parts, *pairs, self._fields, self._payload)
            if part
            for placeholder in part.placeholders
        ]
        files = () if self._payload is None else self._payload.files
        self.files = frozenset(file.name for file in files)  # names of the file arguments
        self.texts = frozenset(placeholder.name for placeholder in Counter(placeholders) - Counter(files))
        self.placeholders = tuple(dict.fromkeys(placeholders))
        self.secrets = frozenset(placeholder.name for placeholder in self.placeholders if placeholder.is_secret)
        self.step_values = frozenset(placeholder for placeholder in self.placeholders if placeholder.step is not None)
        self.credentials = frozenset(
            placeholder
            for placeholder in self.step_values
            if placeholder in self._fields.credentials or sounds_secret(placeholder.name)
        )
        self.secrets_in_host = frozenset(
            placeholder.name for placeholder in self._parts[0].placeholders if placeholder.is_secret
        )

    def fill(self, args: Mapping[str, Any], secret: Lookup) -> HttpRequest:
        """Build the request of one call. Raise BadArguments or ToolFailure for invalid or missing values."""
        values = gather(self.placeholders, args, secret, self._max_bytes)
        host = self._host if isinstance(self._host, str) else _host(self._host, values)
        url = Url(self._scheme, host, self._port, self._fixed_target or self._target(values))
        headers = self._fields.fill(values)
        body = None if self._payload is None else self._payload.fill(values)
        if body is not None and self._fields.content_type is None:
            headers.append(("Content-Type", body.content_type))
        return HttpRequest(self.method, url, headers, b"" if body is None else body.data, self._idempotent)

    def _target(self, values: Values) -> str:
        query, path = self._query.fill(values), self._path.fill(values)
        return f"{path}?{query}" if query else path

    def _read_url(self, text: TemplateText) -> list[PairTemplate]:
        """Parse the URL, and return the pairs of its query."""
        marked, placeholders = text.marked, iter(text.placeholders)
        with refused_at(URL_POINTER):
            self._scheme, authority, rest = split(marked)
            if (authority + rest).count(MARK) < len(text.placeholders):
                raise RequestRefusedError("a placeholder after `#` is never sent")
            plain, self._port = read_authority(authority.replace(MARK, "x"), self._scheme)
            host = unmarked(
                authority.rpartition(":")[0] if ":" in authority.rpartition("]")[2] else authority, placeholders
            )
            if any(placeholder.step for placeholder in host.placeholders):
                raise RequestRefusedError(
                    "the value of a step can't be part of a host: the server that responds would choose it"
                )
            self._host = host if host.placeholders else plain
            path, _, query = rest.partition("?")
            segments = [unmarked(part, placeholders) for part in as_target(path).split("/")]
            self._path = PathTemplate(segments)
            self._parts = (host, *segments)
            return written_pairs(query, placeholders)


def _host(text: TemplateText, values: Values) -> str:
    """Return the host of one call. Values can only be labels, and the result is parsed like a literal host."""
    fits = _LABELS if text.alone else _LABEL

    def fit(placeholder: Placeholder, value: str) -> str:
        if not fits.fullmatch(value):
            raise placeholder.bad("can't be part of a host: that is letters, digits and dashes")
        return value

    filled = text.fill_whole(values, fit, "the URL's host")
    try:
        return normal_host(filled)
    except RequestRefusedError:
        raise text.placeholders[0].bad("is not part of a valid host") from None
