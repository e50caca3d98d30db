"""The settings of one server in `servers:` of the config, with its `auth:`, in the format of other MCP clients.

This module is imported with every config, so it imports nothing slow. Messages never contain a value of `auth:`, which
may be secret.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from onetool.core.errors import Mistake
from onetool.core.redaction import MASK, sounds_secret
from onetool.core.spec import is_address
from onetool.core.text import lazy_pattern, or_rather
from onetool.services.secrets import Secret
from onetool.sources.mcp_servers.program import Program

Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]
Transport = Literal["stdio", "http", "sse"]

PLACEHOLDER = lazy_pattern(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*|file:[^{}\n]+)\}")
MIN_SECRET = 8
SSE = ("sse",)  # the `type` of old servers in other clients' blocks


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an MCP server: a command to start, or a URL. Blocks may be copied from other clients."""

    lenient: ClassVar[bool] = True

    type: str | None = None  # the name of the transport in other clients' blocks
    command: Name | None = None
    args: tuple[str, ...] = ()
    env: dict[str, Secret] = {}
    inherit: bool = True  # pass our variables for certificates, proxies and package indexes on to its process
    cwd: Path | None = None
    url: Name | None = None
    headers: dict[str, Secret] = {}
    auth: dict[str, Any] | Secret | None = None
    timeout: Seconds = 60.0  # of a call
    connect_timeout: Seconds = 30.0  # for starting the server and listing its tools
    enabled: bool = True
    disabled: bool = False  # the form of `enabled: false` in other clients
    tools: tuple[str, ...] | None = None  # patterns with *; None means all tools
    prefix: Name | None = None  # the name of the pack, if it differs from the server's
    parallel: bool = False  # its tools may run concurrently with other calls of a model's step
    pin: bool = False  # refuse the tools after a definition has changed, until a user approves
    strict: bool = True  # refuse code that contradicts a tool's schema without running it
    replicate: bool = False  # every worker and replica may run the server

    docs_url: Name | None = None  # the server's documentation

    mistakes: ClassVar[tuple[Mistake, ...]] = ()

    @staticmethod
    def broken(mistakes: tuple[Mistake, ...]) -> "BrokenServer":
        """Return settings that stand for an invalid block, so that its server is listed with the mistakes."""
        return BrokenServer(mistakes=mistakes)

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "enabled", self.enabled and not self.disabled)

    @property
    def transport(self) -> Transport:
        if self.url is None:
            return "stdio"
        return "sse" if self.type in SSE else "http"

    @property
    def target(self) -> str:
        """The command line or URL, for display. Arguments are shown as written, so that their secrets stay hidden."""
        if self.url is not None:
            return re.sub(r"(?<=://)[^/@]*@", "", _as_written(self.url))  # without credentials
        return " ".join(self.command_line)

    @property
    def command_line(self) -> tuple[str, ...]:
        """The command and its arguments as written, with ${…} for secrets."""
        return (_as_written(self.command or ""), *map(_as_written, self.args))

    @property
    def written_folder(self) -> str | None:
        """The working folder as written, which is the same on all machines with this block."""
        return None if self.cwd is None else str(self.cwd)

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.command and self.url:
            yield "url", "a server has a command or a url, not both", "remove one of them"
        if not self.command and not self.url:
            yield "", "a server needs a command or a url", "add command: … or url: …"
        elif self.url and not self.command and not re.match(r"https?://[^/]", self.url, re.IGNORECASE):
            yield (
                "url",
                f"{_as_written(self.url)!r} is not a url of a server",
                "write http://host/path or https://host/path",
            )
        if self.docs_url and not is_address(self.docs_url):
            yield "docs_url", f"{_as_written(self.docs_url)!r} is not an address", "write https://host/path"
        if self.url and self.auth is not None:
            yield from auth_problems(self.auth)


class PlacedServer(ServerSettings, frozen=True, kw_only=True):
    """Settings of a server with a command, whose working folder defaults to the folder of its config."""

    written_cwd: str | None = None  # as written in the config, whose folder may differ between machines
    project: str | None = None  # the project that must be trusted to run the command, if any
    trusted: Program | None = None  # the program that the command resolved to when the project was trusted
    is_bare: bool = False  # `serve --bare`: it takes the place of all servers of the config

    @property
    def written_folder(self) -> str | None:
        return self.written_cwd


class BrokenServer(ServerSettings, frozen=True, kw_only=True):
    """A placeholder for a server whose block has mistakes."""

    mistakes: tuple[Mistake, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride] - an instance variable here


def missing_secret(settings: ServerSettings) -> str | None:
    """Return the name of a secret in the block that is not set, so that its placeholder remains."""
    auth = settings.auth.values() if isinstance(settings.auth, dict) else (settings.auth,)
    texts = (settings.url, settings.command, *settings.args, *settings.env.values(), *settings.headers.values(), *auth)
    # A Secret that knows its written form was filled in, and its value may contain anything.
    unfilled = (text for text in texts if isinstance(text, str) and getattr(text, "shown", MASK) == MASK)
    found = (PLACEHOLDER.search(text) for text in unfilled)
    return next((match[1] for match in found if match), None)


def secrets_in(settings: ServerSettings) -> Iterator[str]:
    """Yield the values of a block that must be masked though they are literals: copied blocks often contain tokens."""
    for name, value in (*settings.env.items(), *settings.headers.items()):
        if sounds_secret(name):
            for text in {str(value), str(value).rpartition(" ")[2]}:
                # Masking words such as `true`, `test` and `postgres` would garble many results.
                if len(text) >= MIN_SECRET and any(map(str.isalpha, text)) and not text.isalpha():
                    yield text


def pack_name(name: str, settings: ServerSettings) -> str:
    """Return the name of the pack, without dots, because a dot separates a pack from its tools."""
    return (settings.prefix or name).replace(".", "-")


def _as_written(text: str) -> str:
    return text.shown if isinstance(text, Secret) else text


# `auth`

AuthValue = str | Mapping[str, Any] | None
"""The value of `auth:` in the config."""

AuthProblem = tuple[str, str, str | None]
"""The key, the mistake and a hint."""

AUTH_KEY = "auth"
AUTH_FORMS = "write the token itself, usually ${NAME}, or oauth, or {type: bearer | oauth | client_credentials, …}"


class _Unprinted(msgspec.Struct, frozen=True, kw_only=True):
    """A base class whose `repr` shows no values, because they may be secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class BearerToken(_Unprinted, frozen=True, kw_only=True):
    token: str


class PersonLogin(_Unprinted, frozen=True, kw_only=True):
    """A user's login in the browser. Without a client_id, OneTool registers with the server."""

    scopes: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_name: str = "OneTool"
    client_metadata_url: str | None = None
    redirect_port: int | None = None
    issuer: str | None = None  # the only authorization server that may receive our credentials

    @property
    def key(self) -> str:
        """The key of stored tokens, which are used with the same key only."""
        return f"oauth {self.client_id or self.client_metadata_url or ''}"


class ClientCredentials(_Unprinted, frozen=True, kw_only=True):
    """A login with a program's own credentials."""

    client_id: str
    client_secret: str
    scopes: str | None = None
    issuer: str | None = None

    @property
    def key(self) -> str:
        return f"client_credentials {self.client_id}"


AuthSettings = BearerToken | PersonLogin | ClientCredentials

AUTH_TYPES: dict[str, type[AuthSettings]] = {
    "bearer": BearerToken,
    "oauth": PersonLogin,
    "client_credentials": ClientCredentials,
}


def read(auth: AuthValue) -> AuthSettings | None:
    """Return the settings of a value that has no `auth_problems`, or None if it is empty."""
    if auth is None:
        return None
    if isinstance(auth, str):
        return PersonLogin() if auth == "oauth" else BearerToken(token=_without_bearer(auth))
    auth = _with_token_key(auth)
    values = {key: _KEYS[key].read(value) for key, value in auth.items() if key != "type" and value is not None}
    return AUTH_TYPES[auth["type"]](**values)


def auth_problems(auth: AuthValue) -> Iterator[AuthProblem]:
    """Yield all problems with the value."""
    if auth is None:
        return
    if isinstance(auth, str):
        if not _is_token(auth):
            message = "invalid token: it is empty, or contains spaces, line breaks or non-ASCII characters"
            yield AUTH_KEY, message, AUTH_FORMS
    elif not isinstance(auth, Mapping):
        yield AUTH_KEY, "expected a string or a mapping", AUTH_FORMS
    elif auth.get("type") not in AUTH_TYPES:
        yield AUTH_KEY, f"auth.type must be one of {', '.join(AUTH_TYPES)}", AUTH_FORMS
    else:
        kind, auth = auth["type"], _with_token_key(auth)
        fields = msgspec.structs.fields(AUTH_TYPES[kind])
        known = [field.name for field in fields]
        needed = [field.name for field in fields if field.required]
        shape = f"for {kind}: {', '.join(name if name in needed else f'{name}?' for name in known)}"
        for key, value in auth.items():
            if key == "type" or (value is None and key in known and key not in needed):
                continue
            if key not in known:
                yield AUTH_KEY, f"unknown key auth.{key}{or_rather(key, known)}", shape
            elif not _KEYS[key].fits(value):
                yield AUTH_KEY, f"auth.{key} must be {_KEYS[key].expected}", None
        for key in needed:
            if key not in auth:
                yield AUTH_KEY, f"auth.{key} is missing", shape
        if auth.get("client_secret") and not auth.get("client_id"):
            yield AUTH_KEY, "auth.client_secret needs auth.client_id", shape


def _with_token_key(auth: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `{type: bearer, value: …}`, the form of HTTP tools, with the key `token` instead of `value`."""
    if auth["type"] != "bearer" or "token" in auth or "value" not in auth:
        return auth
    return {"token" if key == "value" else key: value for key, value in auth.items()}


class _Key(msgspec.Struct, frozen=True):
    """The validation and conversion of one key of `auth:`."""

    expected: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = str


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[!-~]+", _without_bearer(value)) is not None


def _without_bearer(token: str) -> str:
    """Remove the prefix `Bearer`, which some users write."""
    return re.sub(r"^bearer +", "", token.strip(), flags=re.IGNORECASE)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _are_scopes(value: Any) -> bool:
    items = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else [None]
    return bool(items) and all(isinstance(item, str) and re.fullmatch(r"[!-~ ]*[!-~][!-~ ]*", item) for item in items)


def _is_port(value: Any) -> bool:
    """Return whether the value is a port. Values from ${NAME} are strings of digits."""
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return bool(re.fullmatch(r"[0-9]{1,5}", digits)) and 0 < int(digits) < 65_536


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and bool(re.match(r"https?://[^/\s]+", value)) and value.isprintable()


_KEYS = {
    "token": _Key("a token: one word of ASCII characters", _is_token, _without_bearer),
    "scopes": _Key(
        'a string with spaces between the scopes: "read write"',
        _are_scopes,
        lambda value: " ".join((value if isinstance(value, str) else " ".join(value)).split()),
    ),
    "client_id": _Key("a string", _is_text),
    "client_secret": _Key("a string, usually ${NAME}", _is_text),
    "client_name": _Key("a string: the name that the login page shows", _is_text),
    "client_metadata_url": _Key(
        "the URL of a client's metadata document: https://host/path",
        lambda value: _is_url(value) and value.startswith("https://") and urlsplit(value).path not in ("", "/"),
    ),
    "redirect_port": _Key("a port: 1 to 65535", _is_port, int),
    "issuer": _Key("the URL of the authorization server: https://host", _is_url),
}
