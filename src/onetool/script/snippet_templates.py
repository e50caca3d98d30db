"""Fills the template of a snippet so that no value can become code.

The template engine puts a mark where each value goes. A scanner then finds the context of each mark, and the value is
written accordingly: escaped inside a string literal, on one line in a comment, as a literal in code.
Python's own tokenizer won't do: it reads f-strings differently in 3.11 and 3.12, and the code runs in the sandbox's
language. The template engine has one number type: 2.0 becomes 2.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from minijinja import TemplateError

STRING = r"(?P<prefix>(?i:br|rb|[ft]r|r[ft]|[burft])?)(?P<quote>'''|\"\"\"|'|\")"
HEX = "[0-9a-fA-F]"
LENGTHS = {"x": 4, "u": 6, "U": 10} | dict.fromkeys("01234567", 4)  # complete escapes


class MarkPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of one mark. `outer` are the quotes of f-strings around it."""

    number: int
    start: int
    end: int
    kind: Literal["code", "comment", "literal", "format"]
    quote: str = ""
    prefix: str = ""
    outer: str = ""
    escape: str = ""  # the escape before the mark, if following characters could extend it

    @property
    def raw(self) -> bool:
        return "r" in self.prefix

    @property
    def fields(self) -> bool:
        """Whether braces have a meaning here."""
        return "f" in self.prefix or "t" in self.prefix


class UnclosedError(ValueError):
    """A quote or a brace is not closed, so the code can't be parsed."""


class _Reader:
    """A scanner that reads the code once. Each method reads one kind of context, and leaves `at` after it."""

    def __init__(self, code: str, mark: str) -> None:
        self.text = code
        self.at = 0
        m = re.escape(mark)
        self.mark = re.compile(rf"{m}(\d+){m}")
        self.token = re.compile(rf"(?P<mark>{m}\d+{m})|(?P<comment>#[^\r\n]*)|{STRING}|\w+|(?P<sign>.)", re.DOTALL)
        self.escape = re.compile(rf"\\(?:[0-7]{{1,3}}|x{HEX}{{0,2}}|u{HEX}{{0,4}}|U{HEX}{{0,8}}|N\{{[^}}\n{m}]*\}})")
        self.plain = re.compile(rf"[^\\'\"{{}}\r\n{m}]+")

    def code(self, at: int, outer: str = "", field: bool = False) -> Iterator[MarkPosition]:
        """Read code up to the end of the text, or of the f-string braces around it."""
        self.at, depth = at, 0
        while found := self.token.match(self.text, self.at):
            sign = found["sign"]
            if field and not depth and sign and (sign in "}:" or (sign == "!" and not self._ahead("!="))):
                return
            self.at = found.end()
            if found["mark"]:
                yield self._spot(found.start(), "code", outer=outer)
            elif found["comment"]:
                for mark in self.mark.finditer(self.text, *found.span()):
                    yield self._spot(mark.start(), "comment")
            elif found["quote"]:
                yield from self._literal(found["prefix"].lower(), found["quote"], outer)
            elif sign:
                depth += (sign in "([{") - (sign in ")]}")
        if field:
            raise UnclosedError("a brace of an f-string is not closed")

    def _literal(self, prefix: str, quote: str, outer: str) -> Iterator[MarkPosition]:
        fields, escape = "f" in prefix or "t" in prefix, ""
        while self.at < len(self.text):
            before, escape = escape, ""
            if self._ahead(quote):
                self.at += len(quote)
                return
            if self.mark.match(self.text, self.at):
                yield self._spot(self.at, "literal", quote=quote, prefix=prefix, outer=outer, escape=before)
            elif self._ahead("\\"):
                escape = self._escape(raw="r" in prefix, fields=fields)
            elif fields and self._ahead("{") and not self._ahead("{{"):
                yield from self._field(quote, outer + quote[0])
            elif len(quote) == 1 and self.text[self.at] in "\r\n":
                break
            elif fields and (self._ahead("{{") or self._ahead("}}")):
                self.at += 2
            else:
                self._skip()
        raise UnclosedError(f"the quote {quote} is not closed")

    def _field(self, quote: str, outer: str) -> Iterator[MarkPosition]:
        """Read `{expression!r:format}`."""
        yield from self.code(self.at + 1, outer, field=True)
        if self._ahead("!"):
            yield from self.code(self.at + 1, outer, field=True)
        if not self._ahead("}"):
            yield from self._format(quote, outer)
        self.at += 1

    def _format(self, quote: str, outer: str) -> Iterator[MarkPosition]:
        self.at += 1
        while self.at < len(self.text) and not self._ahead(quote):
            if self._ahead("}"):
                return
            if len(quote) == 1 and self.text[self.at] in "\r\n":
                break
            if self.mark.match(self.text, self.at):
                yield self._spot(self.at, "format", outer=outer)
            elif self._ahead("{"):
                yield from self._field(quote, outer)
            else:
                self._skip()
        raise UnclosedError("a brace of an f-string is not closed")

    def _escape(self, raw: bool, fields: bool) -> str:
        """Read a backslash escape. Return it if a value could extend it."""
        start = self.at
        after = self.text[start + 1 : start + 2]
        if self.mark.match(self.text, start + 1) or (fields and after in ("{", "}")):
            self.at += 1
            return "\\"
        found = None if raw else self.escape.match(self.text, start)
        self.at = found.end() if found else start + 2
        return "" if raw or self.at - start >= LENGTHS.get(after, 0) else self.text[start : self.at]

    def _spot(self, at: int, kind: Literal["code", "comment", "literal", "format"], **more: str) -> MarkPosition:
        found = self.mark.match(self.text, at)
        assert found  # noqa: S101 - the caller has just matched it
        self.at = max(self.at, found.end())
        return MarkPosition(number=int(found[1]), start=at, end=found.end(), kind=kind, **more)

    def _skip(self) -> None:
        found = self.plain.match(self.text, self.at)
        self.at = found.end() if found else self.at + 1

    def _ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.at)


# Putting values into code

BINDS_TIGHTER = re.compile(r"[ \t]*(?:\*\*|[.\[(])")  # … than a sign: -2 ** 2, and 5.real is not a number
FORMAT = re.compile(r"[\w .,%+#<>=^:/-]*\Z")


class UnsayableError(ValueError):
    """The value can't be written at its position."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


def put_values(code: str, values: Sequence[Any], mark: str) -> str:
    """Return the code with its marks, `mark number mark`, replaced by the values with these numbers."""
    places = list(_Reader(code, mark).code(0))
    if code.count(mark) != 2 * len(places):
        raise UnclosedError("an escape is not closed")
    parts: list[str] = []
    at = 0
    for place in places:
        parts.append(code[at : place.start])
        before = next((part[-1] for part in reversed(parts) if part), "")
        value = values[place.number]
        text = value_text(value)
        if place.kind == "code":
            parts.append(_in_code(value, place, before, code))
        elif place.kind == "comment":
            parts.append("".join(char if char.isprintable() else " " for char in text))
        elif place.kind == "format":
            if not FORMAT.match(text):
                raise UnsayableError(value, "it is not a format")
            parts.append(text)
        else:
            parts.append((_in_raw_literal if place.raw else _in_literal)(value, text, place))
        at = place.end
    return "".join([*parts, code[at:]])


def value_text(value: Any) -> str:
    """Return the text of a value inside other text: empty for None."""
    if isinstance(value, str):
        return value
    return "" if value is None else python_literal(value)


def python_literal(value: Any, quote: str = "", outer: str = "") -> str:
    """Return plain data as a Python literal. Strings use `quote`, if given, and contain none of the `outer` quotes."""
    if isinstance(value, str):
        if not quote:
            return repr(value)
        return quote + "".join(_escaped_char(char, quote, outer) for char in value) + quote
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({python_literal(str(value), quote)})"
    if isinstance(value, Mapping):
        pairs = (
            f"{python_literal(key, quote, outer)}: {python_literal(part, quote, outer)}" for key, part in value.items()
        )
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple | range):
        return f"[{', '.join(python_literal(part, quote, outer) for part in value)}]"
    raise UnsayableError(value, "it is not data")


def _in_code(value: Any, place: MarkPosition, before: str, code: str) -> str:
    if not place.outer:
        literal = python_literal(value)
    else:  # in f-string braces, where a second brace would not begin a dict
        literal = python_literal(value, "'" if place.outer[-1] == '"' else '"', place.outer)
        literal = f"({literal})" if isinstance(value, Mapping) else literal
    beside = before + code[place.end : place.end + 1]
    if isinstance(value, str) and any(char.isalnum() or char in "_'\"" for char in beside):
        # f'…' would be another literal than '…', and ''' the start of a longer one
        raise UnsayableError(value, "it touches a word or a quote: leave a space, or put it into quotes")
    if isinstance(value, int | float) and BINDS_TIGHTER.match(code, place.end):
        return f"({literal})"
    return literal


def _in_literal(value: Any, text: str, place: MarkPosition) -> str:
    if place.escape and not place.escape[1:].isdigit():
        raise UnsayableError(value, f"{place.escape} comes right before it: write a backslash as two")
    if "b" in place.prefix:
        text = text.encode().decode("latin-1")
    escaped = [_escaped_char(char, place.quote[0], place.outer, bytes="b" in place.prefix) for char in text]
    if place.fields:
        escaped = [char * 2 if char in ("{", "}") else char for char in escaped]
    if place.escape and text and text[0] in "01234567":  # \0 and 1 would make \01
        escaped[0] = f"\\x{ord(text[0]):02x}"
    return "".join(escaped)


def _escaped_char(char: str, quote: str, outer: str = "", bytes: bool = False) -> str:
    if char == "\\" or char == quote:
        return f"\\{char}"
    if char in outer or (bytes and char > "\x7f"):
        return f"\\x{ord(char):02x}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _in_raw_literal(value: Any, text: str, place: MarkPosition) -> str:
    """Return the value unchanged for a raw string, which has no escapes, or raise. Line breaks need triple quotes."""
    refused = {"\r", "\0", place.quote[0], *place.outer} | ({"\n"} if len(place.quote) == 1 else set())
    last = text[-1:] or place.escape  # a backslash would escape the closing quote
    if refused.intersection(text) or last == "\\" or ("b" in place.prefix and not text.isascii()):
        raise UnsayableError(value, f"{place.prefix}{place.quote}…{place.quote} has no escapes and can't contain it")
    return text.replace("{", "{{").replace("}", "}}") if place.fields else text


# Filling templates

FUEL = 100_000  # steps: a loop over some thousand items
MAX_OUTPUT = 1_000_000  # characters of output
PRIVATE = range(0xF0000, 0xFFFFE)  # private characters; no text contains them all
# Names that could reveal more than the values, exhaust memory, or pass off text as code.
NO_GLOBALS = ("cycler", "debug", "joiner", "namespace")
NO_FILTERS = ("batch", "e", "escape", "format", "indent", "pprint", "safe", "slice", "wordwrap")


class BodyError(ValueError):
    """The template can't be filled."""


def fill_template(body: str, values: Mapping[str, Any]) -> tuple[str, list[Any], str]:
    """Return the text with a mark for each value that it outputs, those values, and the mark's character."""
    from minijinja import Environment, TemplateError  # 25 ms, so only for users of snippets

    taken = body + json.dumps(values, ensure_ascii=False, default=str, skipkeys=True)
    mark = next(chr(code) for code in PRIVATE if chr(code) not in taken)
    out: list[Any] = []
    size = 0

    def emit(value: Any) -> str:
        nonlocal size
        text = value_text(value)
        if mark in text or hasattr(value, "__html__"):  # built by a macro, a set block or a filter block
            raise BodyError("the output of a block or a macro can't be inserted; write it in place")
        size += len(text)
        _check_size(size)
        out.append(value)
        return f"{mark}{len(out) - 1}{mark}"

    env = Environment(
        globals=values,
        filters={"join": _join, "replace": _replace, "tojson": lambda value: json.dumps(value, ensure_ascii=False)},
        fuel=FUEL,
        undefined_behavior="strict",
        finalizer=emit,
        auto_escape_callback=lambda _: "html",  # tells the output of a macro from a value; marks have no HTML
        keep_trailing_newline=True,
        debug=False,
        pycompat=False,
    )
    for name in NO_GLOBALS:
        if name not in values:
            env.remove_global(name)
    for name in NO_FILTERS:
        env.remove_filter(name)
    try:
        text = env.render_str(body)
    except TemplateError as error:
        if error.kind == "UndefinedError":
            undefined = sorted(env.undeclared_variables_in_str(body) - set(values) - {"range", "dict"})
            message = f"it uses {', '.join(undefined) or 'something'}, which does not exist"
        elif error.kind == "OutOfFuel":
            message = f"it takes more than {FUEL:,} steps"
        else:
            message = _message(error)
        raise BodyError(message) from None
    _check_size(len(text))
    return text, out, mark


def syntax_error(body: str) -> str | None:
    """Return what is wrong with the syntax of a body, or None."""
    from minijinja import Environment, TemplateError

    try:
        Environment().add_template("<string>", body)
    except TemplateError as error:
        return _message(error)
    return None


def _message(error: "TemplateError") -> str:
    return str(error.message).replace("(in <string>:", "(line ").replace("\n", " ")


def _check_size(size: int) -> None:
    if size > MAX_OUTPUT:
        raise BodyError(f"it grows longer than {MAX_OUTPUT:,} characters")


def _join(value: Any, by: str = "") -> str:
    parts = [value_text(part) for part in value]
    _check_size(sum(map(len, parts)) + len(by) * len(parts))
    return by.join(parts)


def _replace(value: Any, old: str, new: str) -> str:
    text = value_text(value)
    _check_size(len(text) + (len(new) - len(old)) * text.count(old))
    return text.replace(old, new)
