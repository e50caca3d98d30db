"""`Url`, read once and strictly, and `HttpRequest`, a request that is ready to be sent to one.

URL parsers differ, and attacks use the differences between the parser that checks a host and the one that connects.
So everything that two parsers could read differently is refused: control characters, spaces, backslashes, user names,
a percent sign in a host, addresses in any but their plain form.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple
from unicodedata import category, normalize
from urllib.parse import quote

from onetool.http.errors import RequestRefusedError

DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_HOST = 253
MAX_LABEL = 63

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NO_URL_CHARACTERS = re.compile(r"[^A-Za-z0-9._~:/?@!$&'()*+,;=%\[\]-]+")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Url(NamedTuple):
    """A parsed URL. `host` is a name in A-labels or an address without brackets; `target` is the path and query as
    sent.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The value of the `Host` header: the port is left out if it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self[:3]

    @property
    def is_unseen(self) -> bool:
        """Whether the network can't read the request: it is encrypted, or stays on this machine."""
        return self.scheme == "https" or self.host in LOOPBACK

    @property
    def text(self) -> str:
        """The whole URL, for resolving relative URLs."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """Parse a whole URL. Its fragment is dropped, since it is never sent."""
    scheme, authority, rest = split(text)
    host, port = read_authority(authority, scheme)
    return Url(scheme, host, port, as_target(escape_unsafe(rest)))


def split(text: str) -> tuple[str, str, str]:
    """Return scheme (lower case), authority, and path with query. Raise RequestRefusedError for an invalid URL."""
    if unfit := _UNFIT.search(text):
        how = "write it percent-encoded: %20 for a space, %5C for a backslash"
        raise RequestRefusedError(f"a URL can't contain {describe(unfit[0])}", [how])
    found = _URL.match(text)
    if found is None:
        raise RequestRefusedError("a URL has to start with http:// or https:// and a host")
    return found[1].lower(), found[2], found[3]


def read_authority(text: str, scheme: str) -> tuple[str, int]:
    """Parse `host:port`. Return the normalized host and the port, by default that of the scheme."""
    if "@" in text:
        raise RequestRefusedError("a URL can't have a user name: it would hide the host (for a login there is `auth`)")
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise RequestRefusedError("the URL has an invalid host, or a port that is not a number from 1 to 65535")
    host, port = normal_host(found[1]), int(found[2]) if found[2] else DEFAULT_PORTS[scheme]
    if not 1 <= port <= 65535:
        raise RequestRefusedError(f"{port} is not a port: they go from 1 to 65535")
    return host, port


@lru_cache(maxsize=1024)
def normal_host(text: str) -> str:
    """Return the form in which hosts are compared: lower-case A-labels without a trailing dot, or a plain address."""
    if text.startswith("["):
        try:
            return str(IPv6Address("" if "%" in text else text[1:-1]))
        except ValueError:
            raise RequestRefusedError(f"[{text[1:-1][:100]}] is not an IPv6 address, or has a zone") from None
    labels = [_label(label) for label in text.removesuffix(".").split(".")]
    name = ".".join(labels)
    if _NUMBER.fullmatch(labels[-1]):  # other parsers would read it as an address in one of its many spellings
        try:
            return str(IPv4Address(name))
        except ValueError:
            what = f"{name[:100]!r} is not an IPv4 address in the usual form"
            raise RequestRefusedError(f"{what}: write four numbers, as in 192.0.2.1") from None
    if len(name) > MAX_HOST:
        raise RequestRefusedError(f"a host has at most {MAX_HOST} characters, and this one {len(name)}")
    return name


def is_address(host: str) -> bool:
    """Return whether a normalized host is an address and not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def escape_unsafe(rest: str) -> str:
    """Escape the characters of a path or query that may not be sent. Existing escapes are kept."""
    if _BROKEN_ESCAPE.search(rest):
        raise RequestRefusedError("a % in a URL has to be followed by two hex digits: write %25 for the sign itself")
    return _NO_URL_CHARACTERS.sub(lambda found: quote(found[0], safe=""), rest)


def as_target(rest: str) -> str:
    return rest if rest.startswith("/") else f"/{rest}"


def describe(character: str) -> str:
    """Describe a character in words, since most refused characters are invisible."""
    names = {" ": "a space", "\\": "a backslash", "\n": "a line end", "\r": "a line end", "\t": "a tab"}
    return names.get(character) or f"the character U+{ord(character):04X}"


def _label(text: str) -> str:
    """Return a part of a host name in the form used by DNS."""
    label = text.lower()
    if not text.isascii():
        # IDNA 2008 without mappings except lower case. Characters that stand for others (full-width letters, ligatures,
        # ideographic dots) or for nothing (soft hyphens, joiners) are refused: users don't type these by accident.
        is_plain = all(char == "-" or category(char)[0] in "LM" or category(char) == "Nd" for char in label)
        if not is_plain or normalize("NFKC", label) != label or label[2:4] == "--" or category(label[0])[0] == "M":
            raise RequestRefusedError(f"part of the host stands for other characters or can't be read: {text[:100]!a}")
        label = "xn--" + label.encode("punycode").decode("ascii")
    if not label:
        raise RequestRefusedError("the URL has no host, or two dots follow each other in it")
    if len(label) > MAX_LABEL or not _LABEL.fullmatch(label):
        raise RequestRefusedError(
            f"{text[:100]!r} can't be part of a host: up to {MAX_LABEL} letters, digits and dashes can"
        )
    return label


# Requests


class HttpRequest(NamedTuple):
    method: str
    url: Url
    headers: list[tuple[str, str]]
    body: bytes
    idempotent: bool | None = None  # may be sent twice; None: depends on the method
