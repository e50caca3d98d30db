"""Authentication of requests by bearer token, password, API key or HMAC signature; `oauth` has OAuth 2.

An `Authenticator` is created once per tool. For each call it creates a `Signer` with the values of that call, which
signs every try and every redirect within the tool's own origin.
"""

import hashlib
import hmac
import re
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from onetool.core.errors import BadArguments, ToolFailure
from onetool.http.definition import ApiKey, Basic, Bearer, CamelStruct, Hmac, below
from onetool.http.placeholders import Lookup, Placeholder, TemplateError, gather, parse_text
from onetool.http.template_parts import check_name, in_header, one_line

if TYPE_CHECKING:
    from onetool.http.client import HttpContext
    from onetool.http.url import HttpRequest, Url

Destination = tuple[frozenset[str], "Url | None"]
"""Names of secrets, and the origin they are sent to. None: the host depends on the call."""

AUTH_POINTER = "/request/auth"
MAX_CREDENTIAL = 8 * 1024  # characters of a credential or a token: servers accept no more in a header

_UNFIT_IN_COOKIES = re.compile(r'[\x00-\x20\x7f",;\\]|[^\x00-\x7f]')


class Signer:
    """A signer for the requests of one call."""

    async def prepare(self, left: float) -> None:
        """Fetch credentials within `left` seconds."""

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        """Add the credentials to a request. Called again for every retry and redirect."""
        raise NotImplementedError

    def on_unauthorized(self) -> bool:
        """Return whether new credentials may help after a 401."""
        return False


class AuthTexts:
    """The texts of an `auth` with their placeholders. `check` returns a value, or raises if it is invalid."""

    def __init__(
        self,
        auth: CamelStruct,
        names: Collection[str],
        arguments: Collection[str],
        check: Callable[[Placeholder, str], str] = one_line,
    ) -> None:
        keys = {field.name: field.encode_name for field in msgspec.structs.fields(auth)}
        self._texts = {
            name: parse_text(getattr(auth, name), arguments, below(AUTH_POINTER, keys[name])) for name in names
        }
        self.placeholders = tuple(
            dict.fromkeys(placeholder for text in self._texts.values() for placeholder in text.placeholders)
        )
        self._check = check
        self._keys = keys
        self.secrets = frozenset(placeholder.name for placeholder in self.placeholders if placeholder.is_secret)
        self.arguments = frozenset(placeholder.name for placeholder in self.placeholders if not placeholder.is_secret)

    def fill(self, args: Mapping[str, Any], secret: Lookup) -> dict[str, str]:
        values = gather(self.placeholders, args, secret)
        filled = {name: text.fill_whole(values, self._check, "the login") for name, text in self._texts.items()}
        for name, text in filled.items():
            check_length(text, f"{self._keys[name]} of the tool's auth")
        return filled

    def derived(self, credential: str, secret: Lookup, form: Callable[[str], str] = str) -> list[str]:
        """Return the texts to mask in case a server echoes this credential, encoded in `form` and Base64.

        Without secrets the list is empty. If the texts also contain arguments, the credential differs in each call, and
        masks are never removed. So only the part of each encoded secret that is the same in all calls is masked.
        """
        if len(self.secrets) == len(self.placeholders):
            return [credential] if self.secrets else []
        return [part for name in self.secrets for part in encoded_parts(form(secret(name) or ""))]


class Authenticator:
    """An authenticator for the requests of one tool."""

    asks_elsewhere = False  # True: its secrets go to another origin, which it checks itself

    def __init__(self, placeholders: Iterable[Placeholder]) -> None:
        self.placeholders = frozenset(placeholders)
        self.secrets = frozenset(placeholder.name for placeholder in self.placeholders if placeholder.is_secret)
        self.step_values = frozenset(placeholder for placeholder in self.placeholders if placeholder.step is not None)

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        raise NotImplementedError

    def destinations(self, target: "Url | None") -> "Iterator[Destination]":
        """Yield the origins that secrets are sent to. `target` is the URL of the request."""
        yield self.secrets, target


class _Fixed(Signer):
    """A signer that sets one header to the same value in every request."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        return with_header(request, self._name, self._value)


class _ByHeader(Authenticator):
    """An authenticator that sets a header built from `auth`. `derived`: its value is an encoded secret."""

    def __init__(self, texts: AuthTexts, name: str, value: Callable[[dict[str, str]], str], derived: bool) -> None:
        super().__init__(texts.placeholders)
        self._texts, self._name, self._value, self._derived = texts, name, value, derived
        self._masked = ""

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        value = self._value(self._texts.fill(args, secret))
        if self._derived and value != self._masked:  # mask this form of the secret, too: a server may echo it
            for part in self._texts.derived(value.rpartition(" ")[2], secret):
                context.mask_also(part)
            self._masked = value
        return _Fixed(self._name, value)


class _ByPair(Authenticator):
    """An authenticator that adds `name=value` to the query or to the cookies."""

    def __init__(self, auth: ApiKey, texts: AuthTexts) -> None:
        super().__init__(texts.placeholders)
        self._texts, self._in_query = texts, auth.place == "query"
        self._name = quote(auth.name, safe="") if self._in_query else auth.name

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        value = self._texts.fill(args, secret)["value"]
        return _PairSigner(f"{self._name}={quote(value, safe='') if self._in_query else value}", self._in_query)


class _PairSigner(Signer):
    def __init__(self, pair: str, in_query: bool) -> None:
        self._pair, self._in_query = pair, in_query

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        if not self._in_query:
            others = [value for name, value in request.headers if name.lower() == "cookie"]
            return with_header(request, "Cookie", "; ".join([*others, self._pair]))
        target = request.url.target
        joint = "" if target.endswith(("?", "&")) else "&" if "?" in target else "?"
        return request._replace(url=request.url._replace(target=f"{target}{joint}{self._pair}"))


def authenticator_for(auth: Bearer | Basic | ApiKey | Hmac | None, arguments: Collection[str]) -> Authenticator | None:
    """Return the authenticator of any `auth` but OAuth 2. Raise TemplateError, with a pointer, if it can't work."""
    match auth:
        case None:
            return None
        case Bearer():
            texts = AuthTexts(auth, ("value",), arguments, in_header)
            return _ByHeader(texts, "Authorization", lambda filled: f"Bearer {filled['value']}", derived=False)
        case Basic():
            texts = AuthTexts(auth, ("username", "password"), arguments)
            return _ByHeader(texts, "Authorization", _basic, derived=True)
        case ApiKey():
            if auth.place == "query":
                return _ByPair(auth, AuthTexts(auth, ("value",), arguments))
            check_name(auth.name, below(AUTH_POINTER, "name"))
            if auth.place == "cookie":
                return _ByPair(auth, AuthTexts(auth, ("value",), arguments, _in_cookie))
            texts = AuthTexts(auth, ("value",), arguments, in_header)
            return _ByHeader(texts, auth.name, lambda filled: filled["value"], derived=False)
        case Hmac():
            return HmacAuthenticator(auth, arguments)


def _in_cookie(placeholder: Placeholder, value: str) -> str:
    if _UNFIT_IN_COOKIES.search(value):
        raise placeholder.bad(
            "contains a character that cookies can't contain: a space, a comma, a semicolon, a quote …"
        )
    return value


def _basic(filled: dict[str, str]) -> str:
    if ":" in filled["username"]:
        raise BadArguments("the user name of `auth` contains a colon, which basic authentication can't send")
    return basic(filled["username"], filled["password"])


def basic(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def encoded_parts(text: str) -> list[str]:
    """Return the three forms that a text can have within Base64, one for each offset in a group of three bytes."""
    data = text.encode()
    ends = [(start, (start + len(data)) * 8 // 6) for start in range(3)]
    return [b64encode(bytes(start) + data).decode()[-(-start * 8 // 6) : end] for start, end in ends]


def check_length(text: str, what: str) -> None:
    if len(text) > MAX_CREDENTIAL:
        raise ToolFailure(
            f"{what} has more than {MAX_CREDENTIAL:,} characters, more than servers accept", reason="too_large"
        )


def with_header(request: "HttpRequest", name: str, value: str) -> "HttpRequest":
    """Return the request with this header, replacing any other of the same name."""
    same = name.lower()
    headers = [header for header in request.headers if header[0].lower() != same]
    headers.append((name, value))
    return request._replace(headers=headers)


# HMAC

_SIGNED_PART = re.compile(r"(?<!\$)\{([A-Za-z0-9]+)\}")
SIGNED_PARTS: dict[str, Callable[["HttpRequest", str], bytes]] = {
    "method": lambda request, _: request.method.encode(),
    "path": lambda request, _: request.url.target.encode(),
    "host": lambda request, _: request.url.authority.encode(),
    "timestamp": lambda _, timestamp: timestamp.encode(),
    "body": lambda request, _: request.body,
    "bodySha256": lambda request, _: hashlib.sha256(request.body).hexdigest().encode(),
}


class HmacAuthenticator(Authenticator):
    """An authenticator that signs requests with HMAC. `now` returns seconds since 1970."""

    def __init__(self, auth: Hmac, arguments: Collection[str], now: Callable[[], float] = time.time) -> None:
        self._secret = AuthTexts(auth, ("secret",), arguments, one_line)
        self._prefix = AuthTexts(auth, ("prefix",), arguments, in_header)
        super().__init__(self._secret.placeholders + self._prefix.placeholders)
        self.auth = auth
        self.now = now
        self.payload = _signed_parts(auth)
        check_name(auth.header, below(AUTH_POINTER, "header"))
        if auth.timestamp_header is not None:
            check_name(auth.timestamp_header, below(AUTH_POINTER, "timestampHeader"))

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        key = self._secret.fill(args, secret)["secret"].encode()
        return _HmacSigner(self, key, self._prefix.fill(args, secret)["prefix"])


class _HmacSigner(Signer):
    def __init__(self, authenticator: HmacAuthenticator, key: bytes, prefix: str) -> None:
        self._authenticator, self._key, self._prefix = authenticator, key, prefix

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        auth = self._authenticator.auth
        timestamp = str(int(self._authenticator.now()))
        payload = b"".join(
            part if isinstance(part, bytes) else part(request, timestamp) for part in self._authenticator.payload
        )
        digest = hmac.digest(self._key, payload, auth.algorithm)
        text = digest.hex() if auth.encoding == "hex" else b64encode(digest).decode()
        request = with_header(request, auth.header, f"{self._prefix}{text}")
        return request if auth.timestamp_header is None else with_header(request, auth.timestamp_header, timestamp)


def _signed_parts(auth: Hmac) -> list[bytes | Callable[["HttpRequest", str], bytes]]:
    """Return the constant parts of `payload`, and functions for the variable parts between them."""
    pointer = below(AUTH_POINTER, "payload")
    pieces = _SIGNED_PART.split(auth.payload)  # constants and names alternate
    if unknown := [name for name in pieces[1::2] if name not in SIGNED_PARTS]:
        known = ", ".join(f"{{{name}}}" for name in SIGNED_PARTS)
        raise TemplateError(
            f"{{{unknown[0]}}} is not a part of a request that can be signed; the parts are {known}", pointer
        )
    if "timestamp" in pieces[1::2] and auth.timestamp_header is None:
        raise TemplateError("{timestamp} is signed, so timestampHeader must name the header that sends it", pointer)
    if "${" in auth.payload:
        raise TemplateError("`${…}` can't be signed by itself: sign the part of the request that contains it", pointer)
    return [SIGNED_PARTS[piece] if number % 2 else piece.encode() for number, piece in enumerate(pieces)]
