"""A command as people paste it -> its words, the way bash reads them. Nothing is run or looked up.

A variable of the shell (`$TOKEN`, `${CITY}`) is kept as a mark in the word, since it stands for something that is not
there. Documentation writes those in single quotes, too, where bash would not see them: there only `${NAME}` and names
in capitals count, because `$ref` is JSON.
"""

import re
from collections.abc import Iterator

from onetool.sources.bundles.errors import Invalid

LONGEST = 1024**2
BEGIN, END = "\ue000", "\ue001"  # around the name of a variable; of a plane for private use

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,99})\}|([A-Za-z_][A-Za-z0-9_]{0,99}))")
_QUOTED_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,99})\}|([A-Z][A-Z0-9_]{2,99})(?![a-z]))")
_MARKED = re.compile(f"{BEGIN}([^{BEGIN}{END}]*){END}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES |= {"e": "\x1b", "E": "\x1b", "?": "?"}
_CODE = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})")


def words(text: str) -> list[str]:
    """The words of the first command in the text. Raises Invalid for what can't be understood."""
    if len(text) > LONGEST:
        raise Invalid("the command is longer than 1 MiB")
    if BEGIN in text or END in text or "\0" in text:
        raise Invalid("the command has characters in it that no command has (U+E000, U+E001 or NUL)")
    text = text.replace("\r\n", "\n").strip()
    _refuse_windows(text)
    text = re.sub(r"\A[$>#]\s+", "", text)  # a prompt
    return list(_Reader(text).words())


def variables(word: str) -> list[str]:
    return _MARKED.findall(word)


def pieces(word: str) -> list[tuple[str, bool]]:
    """A word in texts and names of variables; True for a name."""
    parts = _MARKED.split(word)
    return [(part, bool(index % 2)) for index, part in enumerate(parts) if part or index % 2]


def marked(name: str) -> str:
    return f"{BEGIN}{name}{END}"


def _refuse_windows(text: str) -> None:
    if re.search(r"\^\s*\n|\^\"", text):
        raise Invalid("this is a command for Windows (with ^); copy it as cURL for bash instead")
    if re.search(r"`\s*\n", text) or re.match(r"(?i)(invoke-webrequest|iwr)\b", text):
        raise Invalid("this is a command for PowerShell; copy it as cURL for bash instead")


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._word: list[str] | None = None

    def words(self) -> Iterator[str]:
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign in " \t\n":
                yield from self._taken()
                if sign == "\n" and not self._goes_on():
                    return
                self._at += 1
            elif self._ends_here(sign):
                break
            else:
                self._read(sign)
        yield from self._taken()

    def _goes_on(self) -> bool:
        """Options on a line of their own belong to the command, also where a \\ was lost on the way."""
        return self._text[self._at :].lstrip()[:1] == "-"

    def _taken(self) -> Iterator[str]:
        if self._word is not None:
            yield "".join(self._word)
        self._word = None

    def _ends_here(self, sign: str) -> bool:
        """At a pipe, another command, or a file for the output. A URL that nobody quoted may have & and ; in it."""
        if sign == ">" and self._word is not None and "".join(self._word).isdigit():
            self._word = None  # 2>file
        if sign == ">":
            return self._word is None or "<" not in self._word
        if sign in "#<":
            return self._word is None
        if sign == "|":
            return True
        return sign in "&;" and (self._word is None or self._text[self._at + 1 : self._at + 2] in ("", " ", "\n", "&"))

    def _read(self, sign: str) -> None:
        if self._word is None:
            self._word = []
        if sign == "'":
            self._add(_quoted(self._until("'", self._at + 1)), 1)
        elif sign == '"':
            self._double()
        elif sign == "\\":
            self._backslash()
        elif self._text.startswith("$'", self._at):
            self._ansi()
        elif sign == "`" or self._text.startswith("$(", self._at):
            raise Invalid("the command runs another one inside of it ($(…) or `…`); put its result there instead")
        elif sign == "$" and (found := _VARIABLE.match(self._text, self._at)):
            self._word.append(marked(found[1] or found[2]))
            self._at = found.end()
        else:
            self._word.append(sign)
            self._at += 1

    def _add(self, text: str, behind: int) -> None:
        assert self._word is not None  # noqa: S101 - for the type checker: _read has begun one
        self._word.append(text)
        self._at += behind

    def _until(self, quote: str, start: int) -> str:
        end = self._text.find(quote, start)
        if end < 0:
            raise Invalid(f"the quote {quote} that begins at character {start} is never closed")
        self._at = end
        return self._text[start:end]

    def _backslash(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            if self._word == []:
                self._word = None
            self._at += 2
            return
        rest = self._text[self._at + 1 :]
        if following in (" ", "\t") and re.match(r"[ \t]+\n", rest):  # a line goes on, and spaces slipped in
            raise Invalid("there are spaces behind a \\ at the end of a line; remove them")
        self._add(following, 2)

    def _double(self) -> None:
        start = self._at
        self._at += 1
        while (sign := self._text[self._at : self._at + 1]) != '"':
            if not sign:
                raise Invalid(f'the quote " that begins at character {start + 1} is never closed')
            following = self._text[self._at + 1 : self._at + 2]
            if sign == "\\" and following in ('"', "\\", "$", "`", "\n"):
                self._add("" if following == "\n" else following, 2)
            elif sign == "`" or self._text.startswith("$(", self._at):
                raise Invalid("the command runs another one inside of it ($(…) or `…`); put its result there instead")
            elif sign == "$" and (found := _VARIABLE.match(self._text, self._at)):
                self._add(marked(found[1] or found[2]), len(found[0]))
            else:
                self._add(sign, 1)
        self._at += 1

    def _ansi(self) -> None:
        """$'…', as browsers write what has line ends in it."""
        start = self._at
        self._at += 2
        found: list[str] = []
        while (sign := self._text[self._at : self._at + 1]) != "'":
            if not sign:
                raise Invalid(f"the quote $' that begins at character {start + 1} is never closed")
            self._at += 1
            if sign == "\\":
                sign = self._escape()
            found.append(sign)
        self._add(_quoted(_joined("".join(found))), 1)

    def _escape(self) -> str:
        if code := _CODE.match(self._text, self._at):
            self._at = code.end()
            number = int(code[1] or code[2] or code[3] or "0", 16) if not code[4] else int(code[4], 8)
            if number == 0 or number > 0x10FFFF:
                raise Invalid("the command has a character in it that does not exist")
            return chr(number)
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        return _ESCAPES.get(sign, f"\\{sign}")


def _quoted(text: str) -> str:
    return _QUOTED_VARIABLE.sub(lambda found: marked(found[1] or found[2]), text)


def _joined(text: str) -> str:
    r"""Two halves of a character, as \ud83d\ude00, are one; half of one is none."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Invalid("the command has half of a character in it (a lone surrogate)") from None
