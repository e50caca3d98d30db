"""Parse a curl command, first into words like bash, then into the request that curl would send.

Nothing is run or looked up. Shell variables (`$TOKEN`, `${CITY}`) are kept as marks in the words. Documentation also
has variables in single quotes, where bash would not expand them: there only `${NAME}` and names in capitals count,
because `$ref` is JSON. Options that matter only to curl itself are ignored.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal, NamedTuple, NoReturn

from onetool.sources.bundles.errors import InvalidError

MAX_COMMAND = 1024**2
MAX_NUMBER = 10**9  # of an option
BEGIN, END = "\ue000", "\ue001"  # around the name of a variable; private-use characters

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,99})\}|([A-Za-z_][A-Za-z0-9_]{0,99}))")
_QUOTED_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,99})\}|([A-Z][A-Z0-9_]{2,99})(?![a-z]))")
_MARKED = re.compile(f"{BEGIN}([^{BEGIN}{END}]*){END}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES |= {"e": "\x1b", "E": "\x1b", "?": "?"}
_CODE = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})")


def words(text: str) -> list[str]:
    """Return the words of the first command in the text. Raises InvalidError for unsupported syntax."""
    if len(text) > MAX_COMMAND:
        raise InvalidError("the command is longer than 1 MiB")
    if BEGIN in text or END in text or "\0" in text:
        raise InvalidError("the command contains invalid characters (U+E000, U+E001 or NUL)")
    text = text.replace("\r\n", "\n").strip()
    if re.search(r"\^\s*\n|\^\"|`\s*\n", text):
        raise InvalidError("this is a command for cmd or PowerShell; copy it as cURL for bash instead")
    text = re.sub(r"\A[$>#]\s+", "", text)  # a prompt
    return list(_WordReader(text).words())


def variables(word: str) -> list[str]:
    return _MARKED.findall(word)


def pieces(word: str) -> list[tuple[str, bool]]:
    """Split a word into literal parts and names of variables; True marks a name."""
    parts = _MARKED.split(word)
    return [(part, bool(index % 2)) for index, part in enumerate(parts) if part or index % 2]


def marked(name: str) -> str:
    return f"{BEGIN}{name}{END}"


class _WordReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._word: list[str] | None = None

    def words(self) -> Iterator[str]:
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign in " \t\n":
                yield from self._end_word()
                # An option on the next line continues the command, though a \ was lost.
                if sign == "\n" and self._text[self._at :].lstrip()[:1] != "-":
                    return
                self._at += 1
            elif self._ends_here(sign):
                break
            else:
                self._read(sign)
        yield from self._end_word()

    def _end_word(self) -> Iterator[str]:
        if self._word is not None:
            yield "".join(self._word)
        self._word = None

    def _ends_here(self, sign: str) -> bool:
        """Return whether the command ends here: at a pipe, another command, or an output file. An unquoted URL may
        contain & and ;.
        """
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
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise InvalidError(f"the quote ' that begins at character {self._at + 1} is never closed")
            self._add(_mark_variables(self._text[self._at + 1 : end]), end + 1 - self._at)
        elif sign == '"':
            self._double()
        elif sign == "\\":
            self._backslash()
        elif self._text.startswith("$'", self._at):
            self._ansi()
        elif sign == "`" or self._text.startswith("$(", self._at):
            raise InvalidError("the command contains another command ($(…) or `…`); replace it with its result")
        elif sign == "$" and (found := _VARIABLE.match(self._text, self._at)):
            self._word.append(marked(found[1] or found[2]))
            self._at = found.end()
        else:
            self._word.append(sign)
            self._at += 1

    def _add(self, text: str, length: int) -> None:
        assert self._word is not None  # noqa: S101 - for the type checker: _read has started a word
        self._word.append(text)
        self._at += length

    def _backslash(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            if self._word == []:
                self._word = None
            self._at += 2
            return
        rest = self._text[self._at + 1 :]
        if following in (" ", "\t") and re.match(r"[ \t]+\n", rest):  # a continued line with accidental spaces
            raise InvalidError("there are spaces after a \\ at the end of a line; remove them")
        self._add(following, 2)

    def _double(self) -> None:
        start = self._at
        self._at += 1
        while (sign := self._text[self._at : self._at + 1]) != '"':
            if not sign:
                raise InvalidError(f'the quote " that begins at character {start + 1} is never closed')
            following = self._text[self._at + 1 : self._at + 2]
            if sign == "\\" and following in ('"', "\\", "$", "`", "\n"):
                self._add("" if following == "\n" else following, 2)
            elif sign == "`" or self._text.startswith("$(", self._at):
                raise InvalidError("the command contains another command ($(…) or `…`); replace it with its result")
            elif sign == "$" and (found := _VARIABLE.match(self._text, self._at)):
                self._add(marked(found[1] or found[2]), len(found[0]))
            else:
                self._add(sign, 1)
        self._at += 1

    def _ansi(self) -> None:
        """Read $'…', which browsers use for strings with line breaks."""
        start = self._at
        self._at += 2
        found: list[str] = []
        while (sign := self._text[self._at : self._at + 1]) != "'":
            if not sign:
                raise InvalidError(f"the quote $' that begins at character {start + 1} is never closed")
            self._at += 1
            if sign == "\\":
                sign = self._escape()
            found.append(sign)
        try:  # join surrogate pairs such as \ud83d\ude00
            text = "".join(found).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise InvalidError("the command contains a lone surrogate") from None
        self._add(_mark_variables(text), 1)

    def _escape(self) -> str:
        if code := _CODE.match(self._text, self._at):
            self._at = code.end()
            number = int(code[1] or code[2] or code[3] or "0", 16) if not code[4] else int(code[4], 8)
            if number == 0 or number > 0x10FFFF:
                raise InvalidError("the command contains an invalid character escape")
            return chr(number)
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        return _ESCAPES.get(sign, f"\\{sign}")


def _mark_variables(text: str) -> str:
    return _QUOTED_VARIABLE.sub(lambda found: marked(found[1] or found[2]), text)


# Options of curl

_FORM_OPTION = re.compile(r';\s*(type|filename|encoder|headers)=("[^"]*"|[^;]*)')
_QUOTED_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)

# Options that affect the connection, the output, or curl itself.
_IGNORED_FLAGS = """
-s --silent -S --show-error -i --include --show-headers -v --verbose -f --fail --fail-with-body --fail-early -g
--globoff -O --remote-name -J --remote-header-name -R --remote-time -N -# --progress-bar --compressed --tr-encoding -0
--http1.0 --http1.1 --http2 --http2-prior-knowledge --http3 --http3-only -1 -2 -3 --tlsv1 --tlsv1.0 --tlsv1.1 --tlsv1.2
--tlsv1.3 --ssl-no-revoke --ssl-reqd -4 --ipv4 -6 --ipv6 -q --disable --path-as-is --basic --tcp-nodelay --tcp-fastopen
--create-dirs --retry-connrefused --retry-all-errors --raw --styled-output -Z --parallel --post301 --post302 --post303
"""
_IGNORED_VALUES = """
-o --output --output-dir -w --write-out -c --cookie-jar -D --dump-header --connect-timeout --expect100-timeout
--retry-delay --retry-max-time --max-redirs --max-filesize --limit-rate --rate -y --speed-time -Y --speed-limit --stderr
--trace --trace-ascii --keepalive-time -C --continue-at --parallel-max --tls-max --ciphers
"""
_LEFT_OUT = "-x --proxy -U --proxy-user --noproxy --resolve --connect-to --interface --cacert --capath --unix-socket"

FieldKind = Literal["text", "file", "text_file"]
_FIELD_KINDS: dict[str, FieldKind] = {"": "text", "@": "file", "<": "text_file"}


class FormField(NamedTuple):
    """A field of -F. `value` is a string, or the path of a file to send (`file`) or of a text file (`text_file`)."""

    name: str
    value: str
    kind: FieldKind = "text"
    media_type: str = ""
    filename: str = ""


class Command(Namespace):
    """A parsed curl command, in curl's terms."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.method = ""
        self.headers: list[tuple[str, str]] = []
        self.data: list[tuple[str, str]] = []  # ("raw" | "pair" | "json" | "file", text)
        self.fields: list[FormField] = []  # of -F
        self.upload = ""  # of -T, the path of a file
        self.user = ""
        self.bearer = ""
        self.is_get = False
        self.is_head = False
        self.is_insecure = False
        self.follows = False
        self.retries = 0.0
        self.seconds = 0.0
        self.query: list[str] = []
        self.left_out: list[str] = []

    @property
    def file(self) -> str:
        """The path of a file that is the body."""
        return self.upload or next((text for kind, text in self.data if kind == "file"), "")

    @property
    def sends_files(self) -> bool:
        return bool(self.file) or any(field.kind == "file" for field in self.fields)

    @property
    def notes(self) -> list[str]:
        notes = [f"{name} is left out: tools can't choose how they reach the network" for name in self.left_out]
        if self.is_insecure:
            notes.append("-k is left out: certificates are always checked")
        for name, value, kind, *_ in self.fields:
            if kind == "text_file":
                notes.append(f"-F {name}=<{value[:40]}: {name} takes the text itself, not a file to read it from")
        return notes


def read_command(words: list[str]) -> tuple[Command, dict[str, str]]:
    """Parse the command and the variables set before it (`TOKEN=abc curl …`). Raises InvalidError."""
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    if not rest or rest[0].replace("\\", "/").rpartition("/")[2].lower() not in ("curl", "curl.exe"):
        raise InvalidError("the command has to begin with curl")
    command = Command()
    parser, long_names = _parser()
    options: list[str] = []
    others: list[str] = []  # after --
    remaining = iter(rest[1:])
    for word in remaining:
        if word == "--":
            others = list(remaining)
        elif word in long_names:  # also takes a value that begins with a dash
            if (value := next(remaining, None)) is None:
                raise InvalidError(f"{word} needs a value")
            options.append(f"{long_names[word]}={value}")
        else:
            options.append(word)
    _, unknown = parser.parse_known_args(options, command)
    for word in unknown:
        if word.startswith("--no-"):  # turns something of curl off
            continue
        if word.startswith("-"):
            raise InvalidError(f"not supported: {word[:40]}; remove it if the request does not need it")
        command.urls.append(word)
    command.urls += others
    if not command.urls:
        raise InvalidError("the command has no URL")
    if len(command.urls) > 1:
        first, second, *_ = command.urls
        raise InvalidError(
            f"the command has two URLs, {first[:60]!r} and {second[:60]!r}: a tool has one (a value with spaces has to "
            "be in quotes)"
        )
    return command, variables


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidError(f"the options can't be read: {message}")


@cache
def _parser() -> tuple[ArgumentParser, dict[str, str]]:
    """Return the parser, and the long names of options with a value."""
    parser = _Parser(prog="curl", usage="", add_help=False, allow_abbrev=False)
    long_names: dict[str, str] = {}

    def valued(*names: str, **settings: Any) -> None:
        parser.add_argument(*names, **settings)
        long_names.update(dict.fromkeys(names, names[-1]))

    def flag(*names: str, dest: str) -> None:
        parser.add_argument(*names, dest=dest, action="store_true")

    def listed(*names: str, dest: str, type: Callable[[str], Any] = str) -> None:
        valued(*names, dest=dest, action="append", type=type)

    valued("-X", "--request", dest="method", type=str.upper)
    listed("-H", "--header", dest="headers", type=_header)
    listed("-b", "--cookie", dest="headers", type=_cookie)
    listed("-A", "--user-agent", dest="headers", type=lambda text: ("User-Agent", text))
    listed("-e", "--referer", dest="headers", type=lambda text: ("Referer", text.partition(";auto")[0]))
    listed("-r", "--range", dest="headers", type=lambda text: ("Range", f"bytes={text}"))
    listed("-d", "--data-ascii", "--data", dest="data", type=lambda text: ("raw", _written("-d", text)))
    listed("--data-raw", dest="data", type=lambda text: ("raw", text))
    listed("--data-binary", dest="data", type=lambda text: ("file", text[1:]) if text[:1] == "@" else ("raw", text))
    listed("--data-urlencode", dest="data", type=_pair)
    listed("--json", dest="data", type=lambda text: ("json", _written("--json", text)))
    listed("-F", "--form", dest="fields", type=_form)
    listed("--form-string", dest="fields", type=lambda text: FormField(*_name_and_value(text)))
    valued("-T", "--upload-file", dest="upload")
    valued("-u", "--user", dest="user")
    valued("--oauth2-bearer", dest="bearer")
    listed("--url", dest="urls")
    listed("--url-query", dest="query")
    valued("-m", "--max-time", dest="seconds", type=number)
    valued("--retry", dest="retries", type=number)
    flag("-G", "--get", dest="is_get")
    flag("-I", "--head", dest="is_head")
    flag("-L", "--location", "--location-trusted", dest="follows")
    flag("-k", "--insecure", dest="is_insecure")
    for name in _IGNORED_FLAGS.split():
        flag(name, dest="ignored")
    for name in _IGNORED_VALUES.split():
        valued(name, dest="ignored")
    for name in _LEFT_OUT.split():
        listed(name, dest="left_out", type=lambda _, name=name: name)
    return parser, long_names


def number(text: str) -> float:
    value = float(text)
    if not 0 <= value < MAX_NUMBER:
        raise ValueError
    return value


def _header(text: str) -> tuple[str, str]:
    if text.startswith("@"):
        raise InvalidError(f"-H {text[:40]}: files of headers are not supported; write the headers one by one")
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


def _cookie(text: str) -> tuple[str, str]:
    if "=" not in text and BEGIN not in text:
        raise InvalidError(f"-b {text[:40]}: files of cookies are not supported; write name=value")
    return "Cookie", text


def _written(option: str, text: str) -> str:
    if text.startswith("@"):
        raise InvalidError(f"{option} {text[:40]}: files are not supported here; write the content itself")
    return text


def _pair(text: str) -> tuple[str, str]:
    name, equals, _ = text.partition("=")
    if not name or not equals:
        raise InvalidError(f"--data-urlencode {text[:40]}: only name=value is supported")
    return "pair", text


def _form(text: str) -> FormField:
    """Read `name=text`, `name=@path` or `name=<path`, each with optional `;type=image/png;filename=a.png`."""
    name, value = _name_and_value(text)
    sign = value[:1] if value[:1] in ("@", "<") else ""
    value = value.removeprefix(sign)
    if quoted := _QUOTED_VALUE.match(value):
        value, rest = re.sub(r"\\(.)", r"\1", quoted[1]), value[quoted.end() :]
    else:
        end = found.start() if (found := _FORM_OPTION.search(value)) else len(value)
        value, rest = value[:end], value[end:]
    options = {key: one.strip('"') for key, one in _FORM_OPTION.findall(rest)}
    return FormField(name, value, _FIELD_KINDS[sign], options.get("type", ""), options.get("filename", ""))


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidError(f"-F {text[:40]}: write name=text, or name=@path for a file")
    return name, value
