"""Authentication of requests by bearer token, password, API key or HMAC signature; `oauth` has OAuth 2.

An `Authenticator` is created once per tool. For each call it creates a `Signer` with the values of that call, which
signs every attempt and every redirect within the tool's own origin.
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
    """The strings of an `auth` with their placeholders. `check` returns a value, or raises if it is invalid."""

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
        """Return the strings to mask in case a server echoes this credential, encoded in `form` and Base64.

        Without secrets the list is empty. If the strings also contain arguments, the credential differs in each call,
        and masks are never removed. So only the part of each encoded secret that is the same in all calls is masked.
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


class _CredentialAuthenticator(Authenticator):
    """An authenticator that sends one credential in a header, a cookie or the query."""

    def __init__(self, auth: Bearer | Basic | ApiKey, arguments: Collection[str]) -> None:
        self._auth = auth
        self._place = auth.place if isinstance(auth, ApiKey) else "header"
        self._name = auth.name if isinstance(auth, ApiKey) else "Authorization"
        if self._place == "query":
            self._name = quote(self._name, safe="")
        else:
            check_name(self._name, below(AUTH_POINTER, "name"))
        if isinstance(auth, Basic):
            self._texts = AuthTexts(auth, ("username", "password"), arguments)
        else:
            check = {"header": in_header, "cookie": _in_cookie, "query": one_line}[self._place]
            self._texts = AuthTexts(auth, ("value",), arguments, check)
        super().__init__(self._texts.placeholders)
        self._masked = ""

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        filled = self._texts.fill(args, secret)
        if not isinstance(self._auth, Basic):
            value = filled["value"]
            return _CredentialSigner(
                self._place, self._name, f"Bearer {value}" if isinstance(self._auth, Bearer) else value
            )
        if ":" in filled["username"]:
            raise BadArguments("the user name of `auth` contains a colon, which basic authentication can't send")
        value = basic(filled["username"], filled["password"])
        if value != self._masked:  # mask this form of the secret, too: a server may echo it
            for part in self._texts.derived(value.removeprefix("Basic "), secret):
                context.mask_also(part)
            self._masked = value
        return _CredentialSigner(self._place, self._name, value)


class _CredentialSigner(Signer):
    __slots__ = ("_name", "_place", "_value")

    def __init__(self, place: str, name: str, value: str) -> None:
        self._place, self._name, self._value = place, name, value

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        if self._place == "header":
            return with_header(request, self._name, self._value)
        pair = f"{self._name}={self._value}"
        if self._place == "cookie":
            cookies = [value for name, value in request.headers if name.lower() == "cookie"]
            return with_header(request, "Cookie", "; ".join([*cookies, pair]))
        target = request.url.target
        separator = "" if target.endswith(("?", "&")) else "&" if "?" in target else "?"
        pair = f"{self._name}={quote(self._value, safe='')}"
        return request._replace(url=request.url._replace(target=f"{target}{separator}{pair}"))


def authenticator_for(auth: Bearer | Basic | ApiKey | Hmac | None, arguments: Collection[str]) -> Authenticator | None:
    """Return the authenticator of any `auth` but OAuth 2. Raise TemplateError, with a pointer, if it can't work."""
    if auth is None:
        return None
    return HmacAuthenticator(auth, arguments) if isinstance(auth, Hmac) else _CredentialAuthenticator(auth, arguments)


def _in_cookie(placeholder: Placeholder, value: str) -> str:
    if _UNFIT_IN_COOKIES.search(value):
        raise placeholder.bad(
            "contains a character that cookies can't contain: a space, a comma, a semicolon, a quote …"
        )
    return value


def basic(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def encoded_parts(text: str) -> list[str]:
    """Return the three forms that a string can have within Base64, one for each offset in a group of three bytes."""
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
SIGNED_PARTS = ("method", "path", "host", "timestamp", "body", "bodySha256")


class HmacAuthenticator(Authenticator):
    """An authenticator that signs requests with HMAC. `now` returns seconds since 1970."""

    def __init__(self, auth: Hmac, arguments: Collection[str], now: Callable[[], float] = time.time) -> None:
        self._secret = AuthTexts(auth, ("secret",), arguments, one_line)
        self._prefix = AuthTexts(auth, ("prefix",), arguments, in_header)
        super().__init__(self._secret.placeholders + self._prefix.placeholders)
        self.auth = auth
        self.now = now
        self.pieces = _SIGNED_PART.split(auth.payload)  # constants and names of signed parts alternate
        pointer, names = below(AUTH_POINTER, "payload"), self.pieces[1::2]
        if unknown := [name for name in names if name not in SIGNED_PARTS]:
            known = ", ".join(f"{{{name}}}" for name in SIGNED_PARTS)
            raise TemplateError(
                f"{{{unknown[0]}}} is not a part of a request that can be signed; the parts are {known}", pointer
            )
        if "timestamp" in names and auth.timestamp_header is None:
            raise TemplateError("{timestamp} is signed, so timestampHeader must name the header that sends it", pointer)
        if "${" in auth.payload:
            raise TemplateError(
                "`${…}` can't be signed by itself: sign the part of the request that contains it", pointer
            )
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
        auth, pieces = self._authenticator.auth, self._authenticator.pieces
        timestamp = str(int(self._authenticator.now()))
        parts = {
            "method": request.method.encode(),
            "path": request.url.target.encode(),
            "host": request.url.authority.encode(),
            "timestamp": timestamp.encode(),
            "body": request.body,
        }
        if "bodySha256" in pieces:
            parts["bodySha256"] = hashlib.sha256(request.body).hexdigest().encode()
        payload = b"".join(parts[piece] if number % 2 else piece.encode() for number, piece in enumerate(pieces))
        digest = hmac.digest(self._key, payload, auth.algorithm)
        text = digest.hex() if auth.encoding == "hex" else b64encode(digest).decode()
        request = with_header(request, auth.header, f"{self._prefix}{text}")
        return request if auth.timestamp_header is None else with_header(request, auth.timestamp_header, timestamp)
