"""What `auth:` of a server says: a token, a person's login, or a program's own credentials. Touches nothing.

It is read with every config, so nothing slow is imported here. No message repeats a value: most of them are secrets.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onetool.core.nearest import or_rather

AuthValue = str | Mapping[str, Any] | None
"""As the config has it."""

Problem = tuple[str, str, str | None]
"""The key it stands at, what is wrong, what to do."""

KEY = "auth"
SHAPES = "write the token itself, usually ${NAME}, or oauth, or {type: bearer | oauth | client_credentials, …}"


class _Discreet(msgspec.Struct, frozen=True, kw_only=True):
    """Does not show itself: what it holds may be secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class Bearer(_Discreet, frozen=True, kw_only=True):
    """A token that somebody has got already."""

    token: str


class Login(_Discreet, frozen=True, kw_only=True):
    """A person logs in once, in the browser. Without a client_id we register ourselves with the server."""

    scopes: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_name: str = "OneTool"
    client_metadata_url: str | None = None
    redirect_port: int | None = None
    issuer: str | None = None  # the only authorization server that may get our credentials

    @property
    def key(self) -> str:
        """Tokens belong to this: with another one they are not used."""
        return f"oauth {self.client_id or self.client_metadata_url or ''}"


class Credentials(_Discreet, frozen=True, kw_only=True):
    """A program that logs in as itself."""

    client_id: str
    client_secret: str
    scopes: str | None = None
    issuer: str | None = None

    @property
    def key(self) -> str:
        return f"client_credentials {self.client_id}"


Auth = Bearer | Login | Credentials

KINDS: dict[str, type[Auth]] = {"bearer": Bearer, "oauth": Login, "client_credentials": Credentials}


def read(auth: AuthValue) -> Auth | None:
    """The settings, of a value that `problems` has nothing to say about. None where nothing is said."""
    if auth is None:
        return None
    if isinstance(auth, str):
        return Login() if auth == "oauth" else Bearer(token=_bare(auth))
    auth = _of_one_name(auth)
    values = {key: _PARTS[key].read(value) for key, value in auth.items() if key != "type" and value is not None}
    return KINDS[auth["type"]](**values)


def problems(auth: AuthValue) -> Iterator[Problem]:
    """Everything that is wrong with it."""
    if auth is None:
        return
    if isinstance(auth, str):
        if not _is_token(auth):
            yield KEY, "this is no token: it is empty, or has blanks, line breaks or characters beyond ASCII", SHAPES
    elif not isinstance(auth, Mapping):
        yield KEY, "expected a text or a mapping", SHAPES
    elif auth.get("type") not in KINDS:
        yield KEY, f"auth.type must be one of {', '.join(KINDS)}", SHAPES
    else:
        yield from _of_kind(auth["type"], _of_one_name(auth))


def _of_one_name(auth: Mapping[str, Any]) -> Mapping[str, Any]:
    """`{type: bearer, value: …}` is how HTTP tools say it: the same is meant."""
    if auth["type"] != "bearer" or "token" in auth or "value" not in auth:
        return auth
    return {"token" if key == "value" else key: value for key, value in auth.items()}


def _of_kind(kind: str, auth: Mapping[str, Any]) -> Iterator[Problem]:
    fields = msgspec.structs.fields(KINDS[kind])
    known = [field.name for field in fields]
    needed = [field.name for field in fields if field.required]
    shape = f"for {kind}: {', '.join(name if name in needed else f'{name}?' for name in known)}"
    for key, value in auth.items():
        if key == "type":
            continue
        if key not in known:
            yield KEY, f"the key auth.{key} is not known{or_rather(key, known)}", shape
        elif value is None and key not in needed:
            continue
        elif not _PARTS[key].fits(value):
            yield KEY, f"auth.{key} must be {_PARTS[key].expected}", None
    for key in needed:
        if key not in auth:
            yield KEY, f"auth.{key} is missing", shape
    if auth.get("client_secret") and not auth.get("client_id"):
        yield KEY, "auth.client_secret needs auth.client_id", shape


class _Part(msgspec.Struct, frozen=True):
    """One key: what its value must be, and how it is read."""

    expected: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = str


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[!-~]+", _bare(value)) is not None


def _bare(token: str) -> str:
    """Some write it as the header wants it."""
    return re.sub(r"^bearer +", "", token.strip(), flags=re.IGNORECASE)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _are_scopes(value: Any) -> bool:
    items = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else [None]
    return bool(items) and all(isinstance(item, str) and re.fullmatch(r"[!-~ ]*[!-~][!-~ ]*", item) for item in items)


def _joined(value: str | Sequence[str]) -> str:
    return " ".join((value if isinstance(value, str) else " ".join(value)).split())


def _is_port(value: Any) -> bool:
    """A config that has only texts gives digits."""
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return bool(re.fullmatch(r"[0-9]{1,5}", digits)) and 0 < int(digits) < 65_536


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and bool(re.match(r"https?://[^/\s]+", value)) and value.isprintable()


def _is_document_url(value: Any) -> bool:
    return _is_url(value) and value.startswith("https://") and urlsplit(value).path not in ("", "/")


_PARTS = {
    "token": _Part("a token: one word of ASCII", _is_token, _bare),
    "scopes": _Part('a text with blanks between the scopes: "read write"', _are_scopes, _joined),
    "client_id": _Part("a text", _is_text),
    "client_secret": _Part("a text, usually ${NAME}", _is_text),
    "client_name": _Part("a text: what the login page calls us", _is_text),
    "client_metadata_url": _Part("the address of a client's document: https://host/path", _is_document_url),
    "redirect_port": _Part("a port: 1 to 65535", _is_port, int),
    "issuer": _Part("the address of the authorization server: https://host", _is_url),
}
