"""Where in a piece of code something stands: in the code itself, a comment, a literal, or the format behind a colon.

The code has marks in it, for values that come later; each mark is `MARK number MARK`. Python's own tokenizer would not
do: it differs between Python 3.11 and 3.12 (f-strings), and what runs is the sandbox's language, which reads f-strings
as 3.12 does: a literal inside the braces may use any quotes.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

STRING = r"(?P<prefix>(?i:br|rb|[ft]r|r[ft]|[burft])?)(?P<quote>'''|\"\"\"|'|\")"
HEX = "[0-9a-fA-F]"
LENGTHS = {"x": 4, "u": 6, "U": 10} | dict.fromkeys("01234567", 4)  # of an escape that nothing can be added to


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one mark. `outer` are the quotes of f-strings around it."""

    number: int
    start: int
    end: int
    kind: Literal["code", "comment", "literal", "format"]
    quote: str = ""
    prefix: str = ""
    outer: str = ""
    escape: str = ""  # the escape right before the mark, where what follows could become a part of it

    @property
    def raw(self) -> bool:
        return "r" in self.prefix

    @property
    def fields(self) -> bool:
        """Whether braces mean something here."""
        return "f" in self.prefix or "t" in self.prefix


class UnclosedError(ValueError):
    """A quote or a brace without its other half: nobody can say what stands where."""


def spots(code: str, mark: str) -> list[Spot]:
    return list(_Reader(code, mark).code(0))


class _Reader:
    """Walks through the code once. Each method reads one kind of place, and leaves `at` behind it."""

    def __init__(self, code: str, mark: str) -> None:
        self.text = code
        self.at = 0
        m = re.escape(mark)
        self.mark = re.compile(rf"{m}(\d+){m}")
        self.token = re.compile(rf"(?P<mark>{m}\d+{m})|(?P<comment>#[^\r\n]*)|{STRING}|\w+|(?P<sign>.)", re.DOTALL)
        self.escape = re.compile(rf"\\(?:[0-7]{{1,3}}|x{HEX}{{0,2}}|u{HEX}{{0,4}}|U{HEX}{{0,8}}|N\{{[^}}\n{m}]*\}})")
        self.plain = re.compile(rf"[^\\'\"{{}}\r\n{m}]+")

    def code(self, at: int, outer: str = "", field: bool = False) -> Iterator[Spot]:
        """Code up to its end: of the text, or of the braces in an f-string that it stands in."""
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

    def _literal(self, prefix: str, quote: str, outer: str) -> Iterator[Spot]:
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

    def _field(self, quote: str, outer: str) -> Iterator[Spot]:
        """`{expression!r:format}`."""
        yield from self.code(self.at + 1, outer, field=True)
        if self._ahead("!"):
            yield from self.code(self.at + 1, outer, field=True)
        if not self._ahead("}"):
            yield from self._format(quote, outer)
        self.at += 1

    def _format(self, quote: str, outer: str) -> Iterator[Spot]:
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
        """A backslash with what belongs to it. Where that could go on in a value, it is given back."""
        start = self.at
        after = self.text[start + 1 : start + 2]
        if self.mark.match(self.text, start + 1) or (fields and after in ("{", "}")):
            self.at += 1
            return "\\"
        found = None if raw else self.escape.match(self.text, start)
        self.at = found.end() if found else start + 2
        return "" if raw or self.at - start >= LENGTHS.get(after, 0) else self.text[start : self.at]

    def _spot(self, at: int, kind: Literal["code", "comment", "literal", "format"], **more: str) -> Spot:
        found = self.mark.match(self.text, at)
        assert found  # noqa: S101 - whoever asks has just seen it
        self.at = max(self.at, found.end())
        return Spot(number=int(found[1]), start=at, end=found.end(), kind=kind, **more)

    def _skip(self) -> None:
        found = self.plain.match(self.text, self.at)
        self.at = found.end() if found else self.at + 1

    def _ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.at)
