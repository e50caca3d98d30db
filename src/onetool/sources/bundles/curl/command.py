"""The words of a curl command -> what it would send. Options that only matter to curl itself are left out."""

from collections.abc import Callable
from typing import Any

from onetool.sources.bundles.errors import Invalid

_RETRIES = 10


class Command:
    """What a curl command says, in curl's own terms."""

    def __init__(self) -> None:
        self.url = ""
        self.method = ""
        self.headers: list[tuple[str, str]] = []
        self.data: list[tuple[str, str]] = []  # ("raw" | "pair" | "json", text)
        self.user = ""
        self.bearer = ""
        self.is_get = False
        self.is_head = False
        self.follows = False
        self.retries = 0
        self.timeout_ms = 0
        self.query: list[str] = []
        self.notes: list[str] = []


# Options with a value that is not ours: the connection's, the output's, or curl's own.
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
    "-F": "multipart forms can't be made by a tool; if the API takes JSON or a plain form, write it with -d",
    "-T": "files are not sent by a tool; write the content with -d",
    "-K": "a config file is not read; write its options into the command",
    "-E": "client certificates are not supported",
    "--aws-sigv4": "signatures of AWS are not supported",
    "--next": "one command makes one tool: give the requests one by one",
    "-n": "a .netrc file is not read; write -u user:password",
    "--variable": "variables of curl are not read; write their values into the command",
    "--negotiate": "this kind of auth is not supported",
    "--digest": "digest auth is not supported",
    "--ntlm": "this kind of auth is not supported",
}
_SAME = {
    "--form": "-F", "--form-string": "-F", "--upload-file": "-T", "--config": "-K", "--cert": "-E", "--key": "-E",
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
# fmt: on


def read_command(words: list[str]) -> tuple[Command, dict[str, str]]:
    """What it says, and the variables that are set before it: `TOKEN=abc curl …`. Raises Invalid."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        given[name] = value
    if not rest or rest[0].replace("\\", "/").rpartition("/")[2].lower() not in ("curl", "curl.exe"):
        raise Invalid("the command has to begin with curl")
    command = Command()
    _Options(command).read(rest[1:])
    if not command.url:
        raise Invalid("the command has no URL")
    return command, given


class _Options:
    def __init__(self, command: Command) -> None:
        self._command = command
        self._words: list[str] = []
        takes: dict[str, Callable[[str], None]] = {
            "-X": lambda text: setattr(command, "method", text.upper()),
            "-H": self._header,
            "-d": lambda text: self._data("raw", text),
            "--data-raw": lambda text: command.data.append(("raw", text)),
            "--data-binary": lambda text: self._data("raw", text),
            "--data-urlencode": self._urlencode,
            "--json": lambda text: self._data("json", text),
            "-u": lambda text: setattr(command, "user", text),
            "--oauth2-bearer": lambda text: setattr(command, "bearer", text),
            "-b": self._cookie,
            "-A": lambda text: command.headers.append(("User-Agent", text)),
            "-e": lambda text: command.headers.append(("Referer", text.partition(";auto")[0])),
            "-r": lambda text: command.headers.append(("Range", f"bytes={text}")),
            "--url": self._url,
            "--url-query": command.query.append,
            "-m": self._seconds,
            "--retry": self._retry,
        }
        self._takes = takes
        self._flags = {"-G": "is_get", "-I": "is_head", "-L": "follows"}

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
                self._long(word)
            else:
                self._short(word)

    def _long(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if not self._option(name, value if equals else None):
            raise _unknown(name)

    def _short(self, word: str) -> None:
        """`-sSL`, `-XPOST`, `-H "a: b"`: the first letter that takes a value takes the rest."""
        for at, letter in enumerate(word[1:], 1):
            rest = word[at + 1 :]
            if self._option(f"-{letter}", rest or None, attached=True):
                if f"-{letter}" in self._takes or f"-{letter}" in _IGNORED or f"-{letter}" in _NOTED:
                    return
            else:
                raise _unknown(f"-{letter}")

    def _option(self, name: str, value: str | None, attached: bool = False) -> bool:
        """Whether there is such an option; if so it has been taken."""
        name = _SAME.get(name, name)
        if name in _REFUSED:
            raise Invalid(f"{name}: {_REFUSED[name]}")
        if name in self._flags:
            setattr(self._command, self._flags[name], True)
            return True
        if name == "-k":
            self._command.notes.append("-k is left out: certificates are always checked")
            return True
        if name in _FLAGS or name.startswith("--no-"):
            return True
        if name not in self._takes and name not in _IGNORED and name not in _NOTED:
            return False
        if value is None:
            if not self._words:
                raise Invalid(f"{name} needs a value behind it")
            value = self._words.pop(0)
        if name in _NOTED:
            self._command.notes.append(f"{_NOTED[name]} is left out: how tools reach the network is not theirs to say")
        elif name in self._takes:
            self._takes[name](value)
        return True

    def _url(self, text: str) -> None:
        if self._command.url:
            raise Invalid(
                f"the command has two URLs, {self._command.url[:60]!r} and {text[:60]!r}: a tool has one"
                " (a value with spaces has to be in quotes)"
            )
        self._command.url = text.strip()

    def _header(self, text: str) -> None:
        if text.startswith("@"):
            raise Invalid(f"-H {text[:40]}: a file of headers is not read; write them one by one")
        name, colon, value = text.partition(":")
        if colon and value.strip():  # `Name:` tells curl to send none
            self._command.headers.append((name.strip(), value.strip()))

    def _data(self, kind: str, text: str) -> None:
        if text.startswith("@"):
            raise Invalid(f"-d {text[:40]}: a file is not read; write its content there")
        self._command.data.append((kind, text))

    def _urlencode(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals and "@" in text:
            raise Invalid(f"--data-urlencode {text[:40]}: a file is not read; write its content there")
        if not equals or not name:
            raise Invalid("--data-urlencode: only name=value is understood")
        self._command.data.append(("pair", f"{name}={value}"))

    def _cookie(self, text: str) -> None:
        if "=" not in text and "\ue000" not in text:
            raise Invalid(f"-b {text[:40]}: a file of cookies is not read; write name=value")
        self._command.headers.append(("Cookie", text))

    def _seconds(self, text: str) -> None:
        self._command.timeout_ms = min(max(int(_number("-m", text) * 1000), 1), 600_000)

    def _retry(self, text: str) -> None:
        self._command.retries = min(max(int(_number("--retry", text)), 0), _RETRIES)


def _number(name: str, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        raise Invalid(f"{name}: {text[:40]!r} is no number") from None


def _unknown(name: str) -> Invalid:
    return Invalid(f"the option {name[:40]} is not known here; remove it if the request does not need it")
