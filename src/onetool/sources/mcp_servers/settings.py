"""One block of `servers:` in the config, with its `auth:`, in the form in which other MCP clients write theirs.

It is read with every config, so nothing slow is imported here. No message repeats a value of `auth:`: it may be secret.
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
SSE = ("sse",)  # what clients call the transport of old servers


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server to borrow tools from: a command to start, or a url. Blocks are pasted from elsewhere."""

    lenient: ClassVar[bool] = True

    type: str | None = None  # the transport's name, as other clients' blocks give it
    command: Name | None = None
    args: tuple[str, ...] = ()
    env: dict[str, Secret] = {}
    inherit: bool = True  # its process gets the certificates, proxies and indexes that our environment names
    cwd: Path | None = None
    url: Name | None = None
    headers: dict[str, Secret] = {}
    auth: dict[str, Any] | Secret | None = None
    timeout: Seconds = 60.0  # for a call
    connect_timeout: Seconds = 30.0  # until it has started and told its tools
    enabled: bool = True
    disabled: bool = False  # other clients' way to say enabled: false; unheeded, it would start what was turned off
    tools: tuple[str, ...] | None = None  # only these, where * stands for anything; None is all
    prefix: Name | None = None  # the pack's name, where it is not the server's
    parallel: bool = False  # calls of its tools may run beside others that a model makes in one step
    pin: bool = False  # refuse its tools when a definition has changed, until somebody approves
    strict: bool = True  # refuse code that contradicts a tool's schema before it runs
    replicate: bool = False  # every worker and every replica runs one; else one of them does, for all

    docs_url: Name | None = None  # where the server is documented

    mistakes: ClassVar[tuple[Mistake, ...]] = ()

    @staticmethod
    def broken(mistakes: tuple[Mistake, ...]) -> "BrokenServer":
        """Return a block that can't be used: its server is there, and says why it does not work."""
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
        """What a person would recognise it by. Never a secret: args may hold one, and are shown as they are written."""
        if self.url is not None:
            return re.sub(r"(?<=://)[^/@]*@", "", _shown(self.url))  # without credentials
        return " ".join(self.command_line)

    @property
    def command_line(self) -> tuple[str, ...]:
        """The command and its arguments as they are written, with ${…} for secrets."""
        return (_shown(self.command or ""), *map(_shown, self.args))

    @property
    def written_folder(self) -> str | None:
        """The working folder as it is written: the same on all machines that have this block."""
        return None if self.cwd is None else str(self.cwd)

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.command and self.url:
            yield "url", "a server has a command or a url, not both", "remove one of them"
        if not self.command and not self.url:
            yield "", "a server needs a command or a url", "add command: … or url: …"
        elif self.url and not self.command and not re.match(r"https?://[^/]", self.url, re.IGNORECASE):
            yield "url", f"{_shown(self.url)!r} is not a url of a server", "write http://host/path or https://host/path"
        if self.docs_url and not is_address(self.docs_url):
            yield "docs_url", f"{_shown(self.docs_url)!r} is not an address", "write https://host/path"
        if self.url and self.auth is not None:
            yield from auth_problems(self.auth)


class PlacedServer(ServerSettings, frozen=True, kw_only=True):
    """One with a command, whose working folder is that of its config unless the block names one."""

    written_cwd: str | None = None  # as it stands in the config, which may lie in another folder on each machine
    project: str | None = None  # the project whose trust the command needs; None: it needs none
    trusted: Program | None = None  # what the command resolved to when the project was trusted

    @property
    def written_folder(self) -> str | None:
        return self.written_cwd


class BrokenServer(ServerSettings, frozen=True, kw_only=True):
    """Stands for a server whose block has mistakes."""

    mistakes: tuple[Mistake, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride] - of one, not of all


def missing_secret(settings: ServerSettings) -> str | None:
    """Return the name of a secret in the block that is not set: its placeholder is still there."""
    auth = settings.auth.values() if isinstance(settings.auth, dict) else (settings.auth,)
    texts = (settings.url, settings.command, *settings.args, *settings.env.values(), *settings.headers.values(), *auth)
    # A Secret that says how it was written was filled in, and may hold anything.
    unfilled = (text for text in texts if isinstance(text, str) and getattr(text, "shown", MASK) == MASK)
    found = (PLACEHOLDER.search(text) for text in unfilled)
    return next((match[1] for match in found if match), None)


def secrets_in(settings: ServerSettings) -> Iterator[str]:
    """Yield what of a block must not be shown, though it is written out: blocks are pasted with their tokens."""
    for name, value in (*settings.env.items(), *settings.headers.items()):
        if sounds_secret(name):
            for text in {str(value), str(value).rpartition(" ")[2]}:
                # Masking words such as `true`, `test` and `postgres` would spoil half of all results.
                if len(text) >= MIN_SECRET and any(map(str.isalpha, text)) and not text.isalpha():
                    yield text


def pack_name(name: str, settings: ServerSettings) -> str:
    """Return the name of the pack. A pack ends at the first dot, so the name has none."""
    return (settings.prefix or name).replace(".", "-")


def _shown(text: str) -> str:
    return text.shown if isinstance(text, Secret) else text


# `auth`


AuthValue = str | Mapping[str, Any] | None
"""As the config has it."""

AuthProblem = tuple[str, str, str | None]
"""The key it stands at, what is wrong, what to do."""

AUTH_KEY = "auth"
AUTH_FORMS = "write the token itself, usually ${NAME}, or oauth, or {type: bearer | oauth | client_credentials, …}"


class _Unprinted(msgspec.Struct, frozen=True, kw_only=True):
    """Does not show itself: what it holds may be secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class BearerToken(_Unprinted, frozen=True, kw_only=True):
    token: str


class PersonLogin(_Unprinted, frozen=True, kw_only=True):
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


class ClientCredentials(_Unprinted, frozen=True, kw_only=True):
    """A program that logs in as itself."""

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
    """Return the settings of a value without `auth_problems`; None where nothing is said."""
    if auth is None:
        return None
    if isinstance(auth, str):
        return PersonLogin() if auth == "oauth" else BearerToken(token=_bare(auth))
    auth = _of_one_name(auth)
    values = {key: _KEYS[key].read(value) for key, value in auth.items() if key != "type" and value is not None}
    return AUTH_TYPES[auth["type"]](**values)


def auth_problems(auth: AuthValue) -> Iterator[AuthProblem]:
    """Yield everything that is wrong with it."""
    if auth is None:
        return
    if isinstance(auth, str):
        if not _is_token(auth):
            yield (
                AUTH_KEY,
                "this is not a token: it is empty, or has blanks, line breaks or characters beyond ASCII",
                AUTH_FORMS,
            )
    elif not isinstance(auth, Mapping):
        yield AUTH_KEY, "expected a text or a mapping", AUTH_FORMS
    elif auth.get("type") not in AUTH_TYPES:
        yield AUTH_KEY, f"auth.type must be one of {', '.join(AUTH_TYPES)}", AUTH_FORMS
    else:
        yield from _of_kind(auth["type"], _of_one_name(auth))


def _of_one_name(auth: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `{type: bearer, value: …}`, as HTTP tools write it, with the key `token`."""
    if auth["type"] != "bearer" or "token" in auth or "value" not in auth:
        return auth
    return {"token" if key == "value" else key: value for key, value in auth.items()}


def _of_kind(kind: str, auth: Mapping[str, Any]) -> Iterator[AuthProblem]:
    fields = msgspec.structs.fields(AUTH_TYPES[kind])
    known = [field.name for field in fields]
    needed = [field.name for field in fields if field.required]
    shape = f"for {kind}: {', '.join(name if name in needed else f'{name}?' for name in known)}"
    for key, value in auth.items():
        if key == "type":
            continue
        if key not in known:
            yield AUTH_KEY, f"the key auth.{key} is not known{or_rather(key, known)}", shape
        elif value is None and key not in needed:
            continue
        elif not _KEYS[key].fits(value):
            yield AUTH_KEY, f"auth.{key} must be {_KEYS[key].expected}", None
    for key in needed:
        if key not in auth:
            yield AUTH_KEY, f"auth.{key} is missing", shape
    if auth.get("client_secret") and not auth.get("client_id"):
        yield AUTH_KEY, "auth.client_secret needs auth.client_id", shape


class _Key(msgspec.Struct, frozen=True):
    """One key: what its value must be, and how it is read."""

    expected: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = str


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[!-~]+", _bare(value)) is not None


def _bare(token: str) -> str:
    """Return a token without the scheme that some write before it."""
    return re.sub(r"^bearer +", "", token.strip(), flags=re.IGNORECASE)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _are_scopes(value: Any) -> bool:
    items = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else [None]
    return bool(items) and all(isinstance(item, str) and re.fullmatch(r"[!-~ ]*[!-~][!-~ ]*", item) for item in items)


def _joined(value: str | Sequence[str]) -> str:
    return " ".join((value if isinstance(value, str) else " ".join(value)).split())


def _is_port(value: Any) -> bool:
    """Return whether it is a port. A config that has only texts gives digits."""
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return bool(re.fullmatch(r"[0-9]{1,5}", digits)) and 0 < int(digits) < 65_536


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and bool(re.match(r"https?://[^/\s]+", value)) and value.isprintable()


_KEYS = {
    "token": _Key("a token: one word of ASCII", _is_token, _bare),
    "scopes": _Key('a text with blanks between the scopes: "read write"', _are_scopes, _joined),
    "client_id": _Key("a text", _is_text),
    "client_secret": _Key("a text, usually ${NAME}", _is_text),
    "client_name": _Key("a text: what the login page calls us", _is_text),
    "client_metadata_url": _Key(
        "the address of a client's document: https://host/path",
        lambda value: _is_url(value) and value.startswith("https://") and urlsplit(value).path not in ("", "/"),
    ),
    "redirect_port": _Key("a port: 1 to 65535", _is_port, int),
    "issuer": _Key("the address of the authorization server: https://host", _is_url),
}
