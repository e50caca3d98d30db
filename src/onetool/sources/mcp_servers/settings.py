"""One block of `servers:` in the config, in the shape in which other clients write theirs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from onetool.core.errors import Mistake
from onetool.core.secrecy import sounds_secret
from onetool.core.spec import is_address
from onetool.services.secrets import MASK, Secret

Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]
Transport = Literal["stdio", "http", "sse"]

PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
SHORTEST_SECRET = 8
SSE = ("sse",)  # what clients call the transport of old servers


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server to borrow tools from: a command to start, or a url. Blocks are pasted from elsewhere."""

    lenient: ClassVar[bool] = True

    type: str | None = None  # the transport's name, as other clients' blocks give it
    command: Name | None = None
    args: tuple[str, ...] = ()
    env: dict[str, Secret] = {}
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

    docs_url: Name | None = None  # where the server is documented

    mistakes: ClassVar[tuple[Mistake, ...]] = ()

    @staticmethod
    def broken(mistakes: tuple[Mistake, ...]) -> "BrokenServer":
        """A block that can't be used: its server is there, and says why it does not work."""
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
            return _without_credentials(_shown(self.url))
        return " ".join((_shown(self.command or ""), *map(_shown, self.args)))

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.command and self.url:
            yield "url", "a server has a command or a url, not both", "remove one of them"
        if not self.command and not self.url:
            yield "", "a server needs a command or a url", "add command: … or url: …"
        elif self.url and not self.command and not re.match(r"https?://[^/]", self.url, re.IGNORECASE):
            yield "url", f"{_shown(self.url)!r} is no url of a server", "write http://host/path or https://host/path"
        if self.docs_url and not is_address(self.docs_url):
            yield "docs_url", f"{_shown(self.docs_url)!r} is no address", "write https://host/path"
        if self.url and self.auth is not None:
            from onetool.sources.mcp_servers.oauth_settings import problems

            yield from problems(self.auth)


class BrokenServer(Server, frozen=True, kw_only=True):
    """Stands for a server whose block has mistakes."""

    mistakes: tuple[Mistake, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride] - of one, not of all


def missing_secret(settings: Server) -> str | None:
    """A secret that the block wants and that nobody has set: its place stands there as it was written."""
    auth = settings.auth.values() if isinstance(settings.auth, dict) else (settings.auth,)
    texts = (settings.url, settings.command, *settings.args, *settings.env.values(), *settings.headers.values(), *auth)
    # A Secret that says how it was written was filled in, and may hold anything.
    unfilled = (text for text in texts if isinstance(text, str) and getattr(text, "shown", MASK) == MASK)
    found = (PLACE.search(text) for text in unfilled)
    return next((match[1] for match in found if match), None)


def secrets_in(settings: Server) -> Iterator[str]:
    """What of a block must not be shown, though it stands there as it is: blocks are pasted with their tokens."""
    for name, value in (*settings.env.items(), *settings.headers.items()):
        if sounds_secret(name):
            yield from (text for text in {str(value), str(value).rpartition(" ")[2]} if _is_no_word(text))


def _is_no_word(text: str) -> bool:
    """Whether it can be masked wherever it appears: `true`, `test` and `postgres` would spoil half of all results."""
    return len(text) >= SHORTEST_SECRET and any(map(str.isalpha, text)) and not text.isalpha()


def pack_name(name: str, settings: Server) -> str:
    """What its tools are called by. The pack ends at the first dot, so it has none."""
    return (settings.prefix or name).replace(".", "-")


def _shown(text: str) -> str:
    return text.shown if isinstance(text, Secret) else text


def _without_credentials(url: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "", url)
