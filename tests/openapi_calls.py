"""Requests of whole OpenAPI documents: what a caller says, and what the server should get, made of the document alone.

Each operation is called twice: with what it requires, and with everything that its document describes. The mock gives
the described answer. A call is right if the server got exactly what was said, and the caller what the server answered.
"""

import json
import re
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from upstream import Reply, Seen

FILE = b"\x89PNG\r\n\x1a\n\x00"
FORMATS = {
    "date-time": "2026-11-15T10:00:00Z",
    "date": "2026-11-15",
    "time": "10:00:00Z",
    "duration": "P1D",
    "uuid": "01890a5d-ac96-774b-bcce-b302099a8057",
    "email": "a@example.com",
    "hostname": "example.com",
    **dict.fromkeys(("uri", "url", "iri"), "https://example.com/a?b=c"),
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "byte": "aGk=",
    "regex": "a+",
    "json-pointer": "/a",
}
SAMPLES = ("a", "abc", "1", "a1", "A", "ABC", "12345", "2026-11-15", "10:00", "a@example.com", "https://example.com/a")
DEPTH = 12  # of required members
WHOLE = 2  # levels with optional members
IGNORED = frozenset(("accept", "content-type", "authorization", "content-length"))  # header parameters
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


class CannotMakeError(Exception):
    """No value or request can be made of this part of the document."""


class Values:
    """Values that fit the schemas of one document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def at(self, value: Any) -> Any:
        """Follow references."""
        for _ in range(20):
            if not isinstance(value, dict) or not isinstance(ref := value.get("$ref"), str):
                return value
            value = self._root
            for step in ref.removeprefix("#/").split("/"):
                name = unquote(step).replace("~1", "/").replace("~0", "~")
                value = value[int(name)] if isinstance(value, list) else value.get(name, {})
        raise CannotMakeError("circular references")

    def of(self, schema: Any, whole: bool, mark: str = "readOnly", text: str = "ä b&c", depth: int = 0) -> Any:
        """Make a value, without the members that have the `mark`."""
        found = self.flat(schema)
        if depth > DEPTH:
            raise CannotMakeError("required members without end")
        if "const" in found:
            return found["const"]
        kind = kind_of(found)
        if choices := [one for one in found.get("enum") or () if one not in (None, "") and _is_of(one, kind)]:
            return choices[0]
        if kind == "object":
            return self._object(found, whole, mark, text, depth)
        if kind == "array":
            item = self.of(found.get("items", {}), whole, mark, text, depth + 1)
            count = max(1, found.get("minItems") or 0)
            if count > 1 and found.get("uniqueItems"):
                raise CannotMakeError("several different items")
            return [item] * count
        if kind in ("integer", "number"):
            return _number(found, kind)
        if kind == "boolean":
            return True
        if found.get("type") == "null":
            return None
        return _text(found, text)

    def flat(self, schema: Any) -> dict[str, Any]:
        """Join a schema with its parts, and with the first of its alternatives that is not null."""
        found = self.at(schema)
        if not isinstance(found, dict):
            return {}
        parts = [self.flat(part) for part in found.get("allOf") or ()]
        for word in ("oneOf", "anyOf"):
            arms = [self.flat(arm) for arm in found.get(word) or ()]
            arms = [arm for arm in arms if kind_of(arm) != "null"] or arms
            parts += arms[:1]
        if not parts:
            return found
        own = {key: value for key, value in found.items() if key not in ("allOf", "oneOf", "anyOf")}
        joined: dict[str, Any] = {}
        for part in (*parts, own):
            properties = {**joined.get("properties", {}), **(part.get("properties") or {})}
            required = [*joined.get("required", ()), *_required(part)]
            joined |= part
            if properties:
                joined["properties"] = properties
            joined["required"] = required
        return joined

    def _object(self, found: dict[str, Any], whole: bool, mark: str, text: str, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        members = found.get("properties") or {}
        required = _required(found)
        for name, member in members.items():
            is_required = name in required
            if self.is_marked(member, mark) or not name or not (is_required or (whole and depth < WHOLE)):
                continue
            try:
                value[name] = self.of(member, whole, mark, text, depth + 1)
            except CannotMakeError:
                if is_required:
                    raise
        for name in (name for name in members if not whole and name not in required):
            if len(value) < (found.get("minProperties") or 0) and not self.is_marked(members[name], mark):
                value[name] = self.of(members[name], whole, mark, text, depth + 1)
        for name in required:
            if name not in members:
                value[name] = "a"
        more = found.get("additionalProperties")
        is_needed = len(value) < (found.get("minProperties") or 0)
        if not members and isinstance(more, dict) and (is_needed or (whole and depth < WHOLE)):
            value["key"] = self.of(more, whole, mark, text, depth + 1)
        return value

    def is_marked(self, schema: Any, mark: str) -> bool:
        found = self.at(schema)
        return isinstance(found, dict) and found.get(mark) is True


def kind_of(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
    if kind is None and (schema.get("properties") or isinstance(schema.get("additionalProperties"), dict)):
        return "object"
    return "array" if kind is None and "items" in schema else kind


def _is_of(value: Any, kind: str | None) -> bool:
    """Whether a value of an enumeration has the type; some documents have others."""
    types = {"string": str, "boolean": bool, "integer": int | float, "number": int | float, "array": list}
    return kind not in types or (isinstance(value, types[kind]) and (kind == "boolean") == isinstance(value, bool))


def _required(schema: dict[str, Any]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _number(found: dict[str, Any], kind: str) -> int | float:
    low, high, step = found.get("minimum"), found.get("maximum"), found.get("multipleOf")
    lower = found.get("exclusiveMinimum")
    if lower is True:
        low = (low or 0) + 1
    elif isinstance(lower, int | float) and lower is not False:
        low = lower + 1
    value: int | float = 7 if kind == "integer" else 7.5
    if low is not None and value < low:
        value = low
    if high is not None and value > high:
        value = high if low is None or low <= high else low
    value = step if isinstance(step, int | float) and step and value % step else value
    return int(value) if kind == "integer" else value


def _text(found: dict[str, Any], text: str) -> str:
    low, high = found.get("minLength") or 0, found.get("maxLength")
    pattern = found.get("pattern")
    by_format = FORMATS.get(str(found.get("format")))
    shown = [one for one in (found.get("example"), found.get("default")) if isinstance(one, str)]
    choices = [by_format] if by_format else [text]
    if isinstance(pattern, str):
        choices = [*shown, *choices, *SAMPLES]
    for choice in choices:
        value = choice + "a" * (low - len(choice)) if isinstance(high, int) or len(choice) < low else choice
        value = value[:high] if isinstance(high, int) and not by_format else value
        try:
            if not isinstance(pattern, str) or re.search(pattern, value):
                return value
        except re.error:  # of another dialect: most have letters
            return "a" * max(low, 1)
    return _matching(str(pattern), low, high if isinstance(high, int) else None)


@cache
def _matching(pattern: str, low: int, high: int | None) -> str:
    """Find a short text that matches a pattern."""
    from hypothesis import Phase, find, settings
    from hypothesis.errors import HypothesisException
    from hypothesis.strategies import characters, from_regex

    def fits(text: str) -> bool:
        return low <= len(text) and (high is None or len(text) <= high)

    try:
        ascii_texts = from_regex(pattern, alphabet=characters(min_codepoint=32, max_codepoint=126))
        return find(ascii_texts, fits, settings=settings(database=None, derandomize=True, phases=[Phase.generate]))
    except (HypothesisException, re.error, ValueError):
        raise CannotMakeError(f"no text for the pattern {pattern}") from None


# Requests


class Given(NamedTuple):
    """What a caller says: a parameter, or the body."""

    place: str
    name: str
    value: Any
    is_file: bool = False


class Sent(NamedTuple):
    """The request that the server should get."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    cookies: dict[str, str]
    absent: frozenset[str]  # headers of the document that were not given
    media: str | None
    body: Any
    encoding: Mapping[str, Any]
    files: frozenset[str]
    body_needed: bool


class Wanted(NamedTuple):
    """A call, and what should come of it."""

    given: list[Given]
    sent: Sent
    reply: Reply
    value: Any  # what the caller should get; ...: any value
    has_schema: bool  # whether the answer has one


def wanted(root: Mapping[str, Any], method: str, path: str, item: dict[str, Any], whole: bool) -> Wanted:
    """Make a call of an operation. Raises CannotMakeError."""
    values = Values(root)
    operation = item[method.lower()]
    lists = (item.get("parameters", ()), operation.get("parameters", ()))
    parameters = {}
    for one in (values.at(one) for some in lists for one in some):
        if isinstance(one.get("name"), str) and one["name"]:
            parameters[one["in"], one["name"]] = one
    given: list[Given] = []
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    cookies: dict[str, str] = {}
    plain, _, written = path.partition("#")[0].partition("?")
    names = re.findall(r"\{([^{}/]+)\}", f"{plain}?{written}")
    for name in names:
        parameters.setdefault(("path", name), {"name": name, "in": "path", "schema": {"type": "string"}})
    for (place, name), one in parameters.items():
        is_needed = place == "path" or one.get("required") is True
        if (place == "path" and name not in names) or not (is_needed or (whole and not one.get("deprecated"))):
            continue
        if place == "header" and name.lower() in IGNORED:
            continue
        try:
            value = _parameter(values, one, whole)
            pairs = _pairs(one, value)
        except CannotMakeError:
            if is_needed:
                raise
            continue
        if place == "path":
            filled = quote("".join(value for _, value in pairs), safe="")
            plain, written = plain.replace(f"{{{name}}}", filled), written.replace(f"{{{name}}}", filled)
        elif place == "query":
            query += pairs
        elif place == "header":
            headers[name.lower()] = pairs[0][1]
        elif not cookies or is_needed:
            cookies[name] = pairs[0][1]
        else:
            continue
        given.append(Given(place, name, value))
    query += parse_qsl(written, keep_blank_values=True)
    absent = (
        {name.lower() for place, name in parameters if place == "header"} - headers.keys() - IGNORED - {"user-agent"}
    )
    body = values.at(operation.get("requestBody", {}))
    media, value, encoding, files = _body(values, body, whole)
    if media is not None:
        given.append(Given("body", "", value))
    needed = bool(body.get("required"))
    sent = Sent(
        *(method.upper(), plain, query, headers, cookies, frozenset(absent)),
        *(media, value, encoding, files, needed),
    )
    return Wanted(given, sent, *_answer(values, method, operation))


def _parameter(values: Values, one: dict[str, Any], whole: bool) -> Any:
    schema = one.get("schema", {"type": "string"})
    if content := one.get("content"):
        schema = next(iter(content.values())).get("schema", {})
    text = {"header": "a b", "cookie": "ab"}.get(one["in"], "ä b&c")
    return values.of(schema, whole, text=text)


def _pairs(one: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    """Serialise a parameter as its style says."""
    name, place = one["name"], one["in"]
    if one.get("content"):
        return [(name, value if isinstance(value, str) else json.dumps(value))]
    style = one.get("style", "form" if place in ("query", "cookie") else "simple")
    explode = one.get("explode", style == "form")
    if not isinstance(value, dict | list):
        prefix = {"label": ".", "matrix": f";{name}="}.get(style, "") if place == "path" else ""
        return [(name, prefix + scalar(value))]
    if style == "deepObject":
        return list(deep(name, value))
    if place != "query" and isinstance(value, dict):
        raise CannotMakeError("an object outside of the query")
    inner = list(value.values()) if isinstance(value, dict) else value
    if any(isinstance(part, dict | list) for part in inner):
        raise CannotMakeError("a structure whose form is not defined")
    if isinstance(value, dict):
        if explode:
            return [(key, scalar(part)) for key, part in value.items()]
        return [(name, ",".join(text for key, part in value.items() for text in (key, scalar(part))))]
    if explode and place == "query":
        return [(name, scalar(part)) for part in value]
    return [(name, {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",").join(map(scalar, value)))]


def scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from deep(f"{name}[{key}]", part)
    else:
        yield name, scalar(value)


def _body(values: Values, body: dict[str, Any], whole: bool) -> tuple[str | None, Any, Any, frozenset[str]]:
    content = body.get("content") or {}
    nothing = (None, None, {}, frozenset[str]())
    if not content or not (whole or body.get("required") is True):
        return nothing
    kinds = {kind.partition(";")[0].strip().lower(): media for kind, media in content.items()}
    kinds = {"application/json" if kind in ("*/*", "application/*") else kind: one for kind, one in kinds.items()}
    json_kind = next(filter(_is_json, kinds), None)
    kind = json_kind or next((kind for kind in (FORM, MULTIPART) if kind in kinds), next(iter(kinds)))
    media = values.at(kinds[kind])
    if kind.endswith("xml"):
        raise CannotMakeError("a body of XML")
    schema = values.flat(media.get("schema", {}))
    if json_kind:
        return kind, values.of(schema, whole), {}, frozenset()
    if kind not in (FORM, MULTIPART):
        is_text = kind.startswith("text/") or (kind_of(schema) == "string" and schema.get("format") != "binary")
        if is_text and not kind.startswith(("image/", "audio/", "video/", "application/octet-stream")):
            return kind, "ä b&c", {}, frozenset()
        return kind, FILE, {}, frozenset()
    value = values.of(schema, whole)
    if not isinstance(value, dict):
        raise CannotMakeError("a form that is not an object")
    encoding = media.get("encoding") or {}
    files = set()
    required = _required(schema)
    for name, part in list(value.items()):
        member = values.flat((schema.get("properties") or {}).get(name, {}))
        item = values.flat(member.get("items", {})) if kind_of(member) == "array" else member
        is_binary = item.get("format") == "binary" or (name == "file" and item.get("type") == "string")
        if kind == MULTIPART and is_binary:
            files.add(name)
        elif isinstance(part, dict | list) and kind == FORM and _is_undefined(part, encoding.get(name, {})):
            if name in required:
                raise CannotMakeError("a structure whose form is not defined")
            del value[name]
    return kind, value, encoding, frozenset(files)


def _is_undefined(value: Any, encoding: dict[str, Any]) -> bool:
    if encoding.get("style") == "deepObject" or "json" in encoding.get("contentType", ""):
        return False
    return isinstance(value, dict) or any(isinstance(part, dict | list) for part in value)


def _is_json(kind: str) -> bool:
    kind = kind.partition(";")[0].strip().lower()
    return kind in ("application/json", "*/*", "application/*") or kind.endswith("+json")


def _answer(values: Values, method: str, operation: dict[str, Any]) -> tuple[Reply, Any, bool]:
    responses = operation.get("responses") or {}
    codes = [str(code) for code in responses if str(code).startswith("2")] or [*responses][:1]
    code = codes[0] if codes else "204"
    status = int(code) if code.isdigit() else 200
    content = values.at(responses.get(code, {})).get("content") or {}
    if status // 100 != 2:  # the document knows errors and redirects only
        status, content = 200, {}
    kind = next(filter(_is_json, content), next(iter(content), None))
    has_schema = "schema" in content.get(kind, {})
    if status in (204, 205):
        return Reply(status), None, has_schema
    if kind is None:
        return Reply(status), ..., False
    if not _is_json(kind):
        text = "text/plain" if "*" in kind else kind
        return Reply(status, {"Content-Type": text}, b"<a/>"), ..., has_schema
    try:
        value = values.of(content[kind].get("schema", {}), whole=True, mark="writeOnly")
    except CannotMakeError:
        value = {}
    reply = Reply(status, {"Content-Type": "application/json"}, json.dumps(value).encode())
    return reply, ... if method.upper() == "HEAD" else value, has_schema


def differences(sent: Sent, seen: Seen, base: str) -> list[str]:
    """Compare the request that came with the one that should have come."""
    found = []
    path, _, query = seen.target.partition("?")
    if seen.method != sent.method or unquote(path) != unquote(base + sent.path) or _steps(path) != _steps(base, sent):
        found.append(f"{seen.method} {path}, not {sent.method} {base}{sent.path}")
    pairs = parse_qsl(query, keep_blank_values=True)
    if sorted(pairs) != sorted(sent.query):
        more, less = _without(pairs, sent.query), _without(sent.query, pairs)
        found.append(f"in the query {str(more)[:200]}, not {str(less)[:200]}")
    for name, value in sent.headers.items():
        if seen.headers.get(name) != value:
            found.append(f"the header {name} is {seen.headers.get(name)!r}, not {value!r}")
    found += [f"the header {name}, which nobody gave" for name in sent.absent if name in seen.headers]
    cookies = dict(pair.partition("=")[::2] for pair in seen.headers.get("cookie", "").split("; ") if pair)
    if cookies != sent.cookies:
        found.append(f"the cookies {cookies}, not {sent.cookies}")
    return [*found, *_body_differences(sent, seen)]


def _steps(path: str, sent: Sent | None = None) -> int:
    return (path + (sent.path if sent else "")).count("/")


def _without(some: list[tuple[str, str]], others: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in some if one not in others]


def _body_differences(sent: Sent, seen: Seen) -> Iterator[str]:
    kind = seen.headers.get("content-type", "").partition(";")[0].lower()
    if sent.media is None:
        if seen.body not in (b"", b"{}"):
            yield f"a body that nobody gave: {seen.body[:100]!r}"
        return
    # A multipart body has at least one part.
    if not seen.body and sent.body in ({}, []) and (not sent.body_needed or sent.media == MULTIPART):
        return
    if kind != sent.media and "*" not in sent.media:
        yield f"the body is {kind or 'of no type'}, not {sent.media}"
    elif kind == "application/json" or kind.endswith("+json"):
        try:
            got = json.loads(seen.body)
        except ValueError:
            got = seen.body
        if got != sent.body:
            yield f"the body {_short(got)}, not {_short(sent.body)}"
    elif kind == FORM:
        pairs = [(key, _same_json(text)) for key, text in parse_qsl(seen.body.decode(), keep_blank_values=True)]
        expected = _form_pairs(sent)
        if sorted(pairs) != sorted(expected):
            yield f"in the form {_without(pairs, expected)}, not {_without(expected, pairs)}"
    elif kind == MULTIPART:
        parts, expected = _parts(seen), _form_parts(sent)
        if sorted(parts) != sorted(expected):
            yield f"the parts {_short(parts)}, not {_short(expected)}"
    else:
        body = sent.body if isinstance(sent.body, bytes) else str(sent.body).encode()
        if seen.body != body:
            yield f"the body {seen.body[:100]!r}, not {body!r}"


def _short(value: Any) -> str:
    return str(value)[:300]


def _form_pairs(sent: Sent) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in sent.body.items():
        encoding = sent.encoding.get(name, {})
        if "json" in encoding.get("contentType", "") and isinstance(value, dict | list):
            pairs.append((name, json.dumps(value)))
            continue
        style = {key: encoding[key] for key in ("style", "explode") if key in encoding}
        pairs += _pairs({"name": name, "in": "query", **style}, value)
    return pairs


def _form_parts(sent: Sent) -> list[tuple[str, str]]:
    parts = []
    for name, value in sent.body.items():
        for one in value if isinstance(value, list) else [value]:
            content = str(FILE) if name in sent.files else one if isinstance(one, str) else json.dumps(one)
            parts.append((name, content))
    return parts


def _parts(seen: Seen) -> list[tuple[str, str]]:
    parts = []
    message = message_from_bytes(f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode() + seen.body)
    for part in message.get_payload() if message.is_multipart() else ():
        content = part.get_payload(decode=True)
        name = str(part.get_param("name", header="content-disposition"))
        if part.get_filename() is not None:
            parts.append((name, str(content)))
            continue
        parts.append((name, _same_json(content.decode())))
    return parts


def _same_json(text: str) -> str:
    """Write a structure as Python does."""
    return json.dumps(json.loads(text)) if text[:1] in ("[", "{") else text
