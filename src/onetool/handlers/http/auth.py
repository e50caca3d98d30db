"""How a request says who sends it: a token, a password, a key; `signing` and `oauth` have the ways that take more.

A helper is made once, with its tool. For each call it begins a `Signer`, which has that call's values, and signs every
try and every hop of it, as long as they stay with the origin that the tool names.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from onetool.core.errors import BadArguments, ToolFailure
from onetool.handlers.http.fields import check_name, in_header, one_line
from onetool.handlers.http.impl import ApiKey, Basic, Bearer, Hmac, OAuth2, Shape
from onetool.handlers.http.placeholders import Hole, Lookup, gather, read
from onetool.handlers.http.pointers import below

if TYPE_CHECKING:
    from onetool.handlers.http.impl import Auth
    from onetool.handlers.http.outgoing import Outgoing
    from onetool.handlers.http.tool import Outside

POINTER = "/request/auth"
LONGEST = 8 * 1024  # characters of a credential or a token: no server takes more in a header

_UNFIT_IN_COOKIES = re.compile(r'[\x00-\x20\x7f",;\\]|[^\x00-\x7f]')


class Signer:
    """Of one call."""

    async def ready(self, left: float) -> None:
        """Get what is needed, within so many seconds."""

    def sign(self, outgoing: "Outgoing") -> "Outgoing":
        """The request with what it needs. May be asked again, for another try or another hop."""
        raise NotImplementedError

    def refused(self) -> bool:
        """The server says 401. Whether it is worth to get ready again."""
        return False


class Texts:
    """Some texts of an `auth`, with their placeholders. `fit` lets a value pass, or raises what is wrong with it."""

    def __init__(
        self,
        auth: Shape,
        names: Collection[str],
        arguments: Collection[str],
        fit: Callable[[Hole, str], str] = one_line,
    ) -> None:
        keys = {field.name: field.encode_name for field in msgspec.structs.fields(auth)}
        self._texts = {name: read(getattr(auth, name), arguments, below(POINTER, keys[name])) for name in names}
        self._holes = tuple(dict.fromkeys(hole for text in self._texts.values() for hole in text.holes))
        self._fit = fit
        self._keys = keys
        self.secrets = frozenset(hole.name for hole in self._holes if hole.is_secret)

    def fill(self, args: Mapping[str, Any], secret: Lookup) -> dict[str, str]:
        values = gather(self._holes, args, secret)
        filled = {name: text.fill_whole(values, self._fit, "the login") for name, text in self._texts.items()}
        for name, text in filled.items():
            check_length(text, f"{self._keys[name]} of the tool's auth")
        return filled

    def derived(self, credential: str, secret: Lookup, form: Callable[[str], str] = str) -> list[str]:
        """What has to be masked where a server shows a credential that is these texts in base64.

        Without secrets it is nothing. With arguments, too, it is another one in each call, and masks are for good: so
        of each secret (in the form in which it is encoded) it is that part which is the same in all of them.
        """
        if len(self.secrets) == len(self._holes):
            return [credential] if self.secrets else []
        return [part for name in self.secrets for part in _encoded_parts(form(secret(name) or ""))]


class Helper:
    """Of one tool. `secrets` are the names that it needs from the app."""

    secrets: frozenset[str]
    asks_elsewhere = False  # its secrets go to another place than the request, and it looks after that itself

    def begin(self, args: Mapping[str, Any], secret: Lookup, outside: "Outside") -> Signer:
        raise NotImplementedError


class _Fixed(Signer):
    """One header, whatever the request is."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value

    def sign(self, outgoing: "Outgoing") -> "Outgoing":
        return with_header(outgoing, self._name, self._value)


class _ByHeader(Helper):
    """A helper whose header is made of its fields. `derived`: its value is another form of a secret."""

    def __init__(self, texts: Texts, name: str, value: Callable[[dict[str, str]], str], derived: bool) -> None:
        self.secrets = texts.secrets
        self._texts, self._name, self._value, self._derived = texts, name, value, derived
        self._told = ""

    def begin(self, args: Mapping[str, Any], secret: Lookup, outside: "Outside") -> Signer:
        value = self._value(self._texts.fill(args, secret))
        if self._derived and value != self._told:  # a server that shows what it got must not show this
            for part in self._texts.derived(value.rpartition(" ")[2], secret):
                outside.know(part)
            self._told = value
        return _Fixed(self._name, value)


class _InQuery(Helper):
    def __init__(self, auth: ApiKey, texts: Texts) -> None:
        self.secrets = texts.secrets
        self._name, self._texts = quote(auth.name, safe=""), texts

    def begin(self, args: Mapping[str, Any], secret: Lookup, outside: "Outside") -> Signer:
        return _QuerySigner(f"{self._name}={quote(self._texts.fill(args, secret)['value'], safe='')}")


class _QuerySigner(Signer):
    def __init__(self, pair: str) -> None:
        self._pair = pair

    def sign(self, outgoing: "Outgoing") -> "Outgoing":
        target = outgoing.url.target
        joint = "" if target.endswith(("?", "&")) else "&" if "?" in target else "?"
        return outgoing._replace(url=outgoing.url._replace(target=f"{target}{joint}{self._pair}"))


class _InCookie(Helper):
    def __init__(self, auth: ApiKey, texts: Texts) -> None:
        self.secrets = texts.secrets
        self._name, self._texts = auth.name, texts

    def begin(self, args: Mapping[str, Any], secret: Lookup, outside: "Outside") -> Signer:
        return _CookieSigner(f"{self._name}={self._texts.fill(args, secret)['value']}")


class _CookieSigner(Signer):
    def __init__(self, pair: str) -> None:
        self._pair = pair

    def sign(self, outgoing: "Outgoing") -> "Outgoing":
        others = [value for name, value in outgoing.headers if name.lower() == "cookie"]
        return with_header(outgoing, "Cookie", "; ".join([*others, self._pair]))


def helper_for(auth: "Auth | None", arguments: Collection[str], arg_schema: Mapping[str, Any]) -> Helper | None:
    """The helper; TemplateError, with a pointer, for what can't ever work."""
    match auth:
        case None:
            return None
        case Bearer():
            texts = Texts(auth, ("value",), arguments, in_header)
            return _ByHeader(texts, "Authorization", lambda filled: f"Bearer {filled['value']}", derived=False)
        case Basic():
            return _ByHeader(Texts(auth, ("username", "password"), arguments), "Authorization", _basic, derived=True)
        case ApiKey():
            return _api_key(auth, arguments)
        case Hmac():
            from onetool.handlers.http.signing import HmacHelper

            return HmacHelper(auth, arguments)
        case OAuth2():
            from onetool.handlers.http.oauth import OAuthHelper

            return OAuthHelper(auth, arguments, arg_schema)


def _api_key(auth: ApiKey, arguments: Collection[str]) -> Helper:
    if auth.place == "query":
        return _InQuery(auth, Texts(auth, ("value",), arguments))
    check_name(auth.name, below(POINTER, "name"))
    if auth.place == "cookie":
        return _InCookie(auth, Texts(auth, ("value",), arguments, _in_cookie))
    texts = Texts(auth, ("value",), arguments, in_header)
    return _ByHeader(texts, auth.name, lambda filled: filled["value"], derived=False)


def _in_cookie(hole: Hole, value: str) -> str:
    if _UNFIT_IN_COOKIES.search(value):
        raise hole.bad("has a character that a cookie can't have: a space, a comma, a semicolon, a quote …")
    return value


def _basic(filled: dict[str, str]) -> str:
    if ":" in filled["username"]:
        raise BadArguments("the user name of `auth` has a colon in it, which basic authentication can't send")
    return basic(filled["username"], filled["password"])


def basic(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def _encoded_parts(text: str) -> list[str]:
    """A text as it stands in the middle of base64: it may begin at any of three places of a group there."""
    data = text.encode()
    ends = [(start, (start + len(data)) * 8 // 6) for start in range(3)]
    return [b64encode(bytes(start) + data).decode()[-(-start * 8 // 6) : end] for start, end in ends]


def check_length(text: str, what: str) -> None:
    if len(text) > LONGEST:
        raise ToolFailure(f"{what} has more than {LONGEST:,} characters, which no server takes", reason="too_large")


def with_header(outgoing: "Outgoing", name: str, value: str) -> "Outgoing":
    """With that header, and no other one of that name."""
    same = name.lower()
    headers = [header for header in outgoing.headers if header[0].lower() != same]
    headers.append((name, value))
    return outgoing._replace(headers=headers)
