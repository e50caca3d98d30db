"""Parse a curl command, first into words like bash, then into the request that curl would send.

Nothing is run or looked up. Shell variables (`$TOKEN`, `${CITY}`) are kept as marks in the words. Documentation also
has variables in single quotes, where bash would not expand them: there only `${NAME}` and names in capitals count,
because `$ref` is JSON. Options that matter only to curl itself are ignored.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from onetool.sources.bundles.errors import InvalidError

MAX_COMMAND = 1024**2
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
    if re.search(r"\^\s*\n|\^\"", text):
        raise InvalidError("this is a command for Windows (with ^); copy it as cURL for bash instead")
    if re.search(r"`\s*\n", text) or re.match(r"(?i)(invoke-webrequest|iwr)\b", text):
        raise InvalidError("this is a command for PowerShell; copy it as cURL for bash instead")
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

FieldKind = Literal["text", "file", "text_file"]
_FIELD_KINDS: dict[str, FieldKind] = {"": "text", "@": "file", "<": "text_file"}


class FormField(NamedTuple):
    """A field of -F. `value` is a string, or the path of a file to send (`file`) or of a text file (`text_file`)."""

    name: str
    value: str
    kind: FieldKind = "text"
    media_type: str = ""
    filename: str = ""


class Command:
    """A parsed curl command, in curl's terms."""

    def __init__(self) -> None:
        self.url = ""
        self.method = ""
        self.headers: list[tuple[str, str]] = []
        self.data: list[tuple[str, str]] = []  # ("raw" | "pair" | "json", text)
        self.fields: list[FormField] = []  # of -F
        self.file = ""  # the path of a file that is the body
        self.user = ""
        self.bearer = ""
        self.is_get = False
        self.is_head = False
        self.is_put = False
        self.follows = False
        self.retries = 0
        self.timeout_ms = 0
        self.query: list[str] = []
        self.notes: list[str] = []

    @property
    def sends_files(self) -> bool:
        return bool(self.file) or any(field.kind == "file" for field in self.fields)


# Ignored options with a value, which affect the connection, the output, or curl itself.
# fmt: off
_IGNORED = frozenset((
    "-o", "--output", "-w", "--write-out", "-c", "--cookie-jar", "-D", "--dump-header", "--connect-timeout",
    "--retry-delay", "--retry-max-time", "--max-redirs", "--limit-rate", "-y", "--speed-time", "-Y", "--speed-limit",
    "--stderr", "--trace", "--trace-ascii", "--keepalive-time", "--output-dir", "--create-file-mode",
    "--max-filesize", "-C", "--continue-at", "--parallel-max", "--rate", "--expect100-timeout", "--tls-max",
    "--ciphers", "--curves", "--dns-servers", "--hostpubmd5",
))
_NOTED = {
    "-x": "the proxy", "--proxy": "the proxy", "--resolve": "--resolve", "--connect-to": "--connect-to",
    "--interface": "--interface", "--cacert": "the certificates", "--capath": "the certificates",
    "--proxy-user": "the proxy's user", "-U": "the proxy's user", "--noproxy": "--noproxy", "--preproxy": "the proxy",
    "--unix-socket": "--unix-socket", "--socks5": "the proxy", "--socks5-hostname": "the proxy",
    "--haproxy-clientip": "it",
}
_REFUSED = {
    "-K": "config files are not supported; write their options into the command",
    "-E": "client certificates are not supported",
    "--aws-sigv4": "AWS signatures are not supported",
    "--next": "one command becomes one tool: import the requests one by one",
    "-n": ".netrc files are not supported; write -u user:password",
    "--variable": "variables of curl are not supported; write their values into the command",
    "--negotiate": "this kind of auth is not supported",
    "--digest": "digest auth is not supported",
    "--ntlm": "this kind of auth is not supported",
}
_ALIASES = {
    "--form": "-F", "--upload-file": "-T", "--config": "-K", "--cert": "-E", "--key": "-E",
    "-:": "--next", "--netrc": "-n", "--netrc-file": "-n", "--anyauth": "--digest", "--request": "-X",
    "--header": "-H", "--data": "-d", "--data-ascii": "-d", "--user": "-u", "--cookie": "-b", "--user-agent": "-A",
    "--referer": "-e", "--get": "-G", "--head": "-I", "--location": "-L", "--max-time": "-m",
    "--location-trusted": "-L", "--insecure": "-k", "--range": "-r",
}
_FLAGS = frozenset((
    "-s", "--silent", "-S", "--show-error", "-i", "--include", "--show-headers", "-v", "--verbose", "-f", "--fail",
    "--fail-with-body", "--fail-early", "-g", "--globoff", "-O", "--remote-name", "-J", "--remote-header-name", "-R",
    "--remote-time", "-N", "--no-buffer", "-#", "--progress-bar", "--no-progress-meter", "--compressed",
    "--tr-encoding", "-0", "--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge", "--http3", "--http3-only",
    "-1", "-2", "-3", "--tlsv1", "--tlsv1.0", "--tlsv1.1", "--tlsv1.2", "--tlsv1.3", "--ssl-no-revoke", "-4",
    "--ipv4", "-6", "--ipv6", "-q", "--disable", "--path-as-is", "--basic", "--no-keepalive", "--tcp-nodelay",
    "--tcp-fastopen", "-a", "--create-dirs", "--retry-connrefused", "--retry-all-errors", "--raw", "--styled-output",
    "-Z", "--parallel", "--compressed-ssh", "--proto-default", "--post301", "--post302", "--post303", "--no-alpn",
    "--no-npn", "--ca-native", "--ssl-reqd", "-l",
))
_VALUED = frozenset((
    "-X", "-H", "-d", "--data-raw", "--data-binary", "-F", "--form-string", "-T", "--data-urlencode", "--json", "-u",
    "--oauth2-bearer", "-b", "-A", "-e", "-r", "--url", "--url-query", "-m", "--retry",
))
_SWITCHES = {"-G": "is_get", "-I": "is_head", "-L": "follows"}
# fmt: on


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
    _Options(command).read(rest[1:])
    if not command.url:
        raise InvalidError("the command has no URL")
    return command, variables


class _Options:
    def __init__(self, command: Command) -> None:
        self._command = command
        self._words: list[str] = []

    def read(self, words: list[str]) -> None:
        self._words = words
        only_urls = False
        while self._words:
            word = self._words.pop(0)
            if only_urls or not word.startswith("-") or word == "-":
                self._url(word)
            elif word == "--":
                only_urls = True
            elif word.startswith("--"):
                name, equals, value = word.partition("=")
                if not self._option(name, value if equals else None):
                    raise _unknown(name)
            else:
                self._short(word)

    def _short(self, word: str) -> None:
        """Read short options (`-sSL`, `-XPOST`, `-H "a: b"`). The first with a value takes the rest of the word."""
        for at, letter in enumerate(word[1:], 1):
            rest = word[at + 1 :]
            if self._option(f"-{letter}", rest or None):
                if f"-{letter}" in _VALUED or f"-{letter}" in _IGNORED or f"-{letter}" in _NOTED:
                    return
            else:
                raise _unknown(f"-{letter}")

    def _option(self, name: str, value: str | None) -> bool:
        """Read an option. Return whether the option is known."""
        name = _ALIASES.get(name, name)
        if name in _REFUSED:
            raise InvalidError(f"{name}: {_REFUSED[name]}")
        if name in _SWITCHES:
            setattr(self._command, _SWITCHES[name], True)
            return True
        if name == "-k":
            self._command.notes.append("-k is left out: certificates are always checked")
            return True
        if name in _FLAGS or name.startswith("--no-"):
            return True
        if name not in _VALUED and name not in _IGNORED and name not in _NOTED:
            return False
        if value is None:
            if not self._words:
                raise InvalidError(f"{name} needs a value")
            value = self._words.pop(0)
        if name in _NOTED:
            self._command.notes.append(f"{_NOTED[name]} is left out: tools can't choose how they reach the network")
        elif name in _VALUED:
            self._take(name, value)
        return True

    def _take(self, name: str, text: str) -> None:
        """Read an option with a value."""
        command, is_file = self._command, text.startswith("@")
        match name:
            case "-X":
                command.method = text.upper()
            case "-H" if is_file:
                raise InvalidError(f"-H {text[:40]}: files of headers are not supported; write the headers one by one")
            case "-H":
                header, _, value = text.partition(":")
                if value.strip():  # `Name:` tells curl not to send the header
                    command.headers.append((header.strip(), value.strip()))
            case "-d" | "--json" if is_file:
                raise InvalidError(f"-d {text[:40]}: files are not supported here; write the content itself")
            case "--data-binary" if is_file:
                command.file = text[1:]
            case "-d" | "--data-raw" | "--data-binary":
                command.data.append(("raw", text))
            case "--json":
                command.data.append(("json", text))
            case "--data-urlencode":
                field, equals, _ = text.partition("=")
                if not equals and "@" in text:
                    raise InvalidError(
                        f"--data-urlencode {text[:40]}: files are not supported here; write the content itself"
                    )
                if not field or not equals:
                    raise InvalidError("--data-urlencode: only name=value is supported")
                command.data.append(("pair", text))
            case "-F":
                self._form(text)
            case "--form-string":
                command.fields.append(FormField(*_name_and_value(text)))
            case "-T":
                command.file, command.is_put = text, True
            case "-u":
                command.user = text
            case "--oauth2-bearer":
                command.bearer = text
            case "-b":
                if "=" not in text and BEGIN not in text:
                    raise InvalidError(f"-b {text[:40]}: files of cookies are not supported; write name=value")
                command.headers.append(("Cookie", text))
            case "-A":
                command.headers.append(("User-Agent", text))
            case "-e":
                command.headers.append(("Referer", text.partition(";auto")[0]))
            case "-r":
                command.headers.append(("Range", f"bytes={text}"))
            case "--url-query":
                command.query.append(text)
            case "-m":
                command.timeout_ms = min(max(int(_number("-m", text) * 1000), 1), 600_000)
            case "--retry":
                command.retries = min(max(int(_number("--retry", text)), 0), 10)
            case _:
                self._url(text)

    def _url(self, text: str) -> None:
        if self._command.url:
            raise InvalidError(
                f"the command has two URLs, {self._command.url[:60]!r} and {text[:60]!r}: a tool has one"
                " (a value with spaces has to be in quotes)"
            )
        self._command.url = text.strip()

    def _form(self, text: str) -> None:
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
        kind = _FIELD_KINDS[sign]
        if sign == "<":
            self._command.notes.append(
                f"-F {name}=<{value[:40]}: {name} takes the text itself, not a file to read it from"
            )
        self._command.fields.append(FormField(name, value, kind, options.get("type", ""), options.get("filename", "")))


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidError(f"-F {text[:40]}: write name=text, or name=@path for a file")
    return name, value


def _number(name: str, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        raise InvalidError(f"{name}: {text[:40]!r} is not a number") from None


def _unknown(name: str) -> InvalidError:
    return InvalidError(f"unknown option {name[:40]}; remove it if the request does not need it")
