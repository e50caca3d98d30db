"""What several processes need to share the stdio servers: one of them runs a server, the others send their calls to it.

A server that is started by a command keeps its state in its process, so two of them would not know of each other.
Servers that are reached over HTTP are not shared: every process connects to them itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.settings import ServerSettings

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import UpstreamConnection
    from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

DIGEST_DIGITS = 16
RequestKind = Literal["tool", "prompt", "resource", "connect", "reconnect"]


class ServerRequest(msgspec.Struct, frozen=True):
    """A request to a server as data, so that another process can make it: see `Work`."""

    kind: RequestKind
    name: str = ""  # of the tool or the prompt, or the URI of the resource
    args: Mapping[str, Any] = {}

    async def __call__(self, connection: "UpstreamConnection", call: "UpstreamCall") -> Any:
        match self.kind:
            case "tool":
                return await connection.call(self.name, self.args, call)
            case "prompt":
                return await connection.prompt(self.name, self.args, call)
            case "resource":
                return await connection.resource(self.name, call)
            case _:
                raise ToolFailure(f"{self.kind} is no request to a server")


class SharedBlock:
    """A part of an answer that came as data: of an SDK's block what `conversion` uses. The SDK need not be loaded."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def type(self) -> Any:
        return self._data.get("type")

    @property
    def text(self) -> str:
        return self._data.get("text", "")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(self._data)


class SharedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a tool as data: of an SDK's CallToolResult what `conversion` uses."""

    is_error: bool = False
    blocks: tuple[Mapping[str, Any], ...] = ()
    structured_content: Any = None
    meta: Mapping[str, Any] | None = None

    @property
    def content(self) -> list[SharedBlock]:
        return [SharedBlock(one) for one in self.blocks]


def shared_result(result: Any) -> SharedResult:
    """An answer of the SDK as data."""
    return SharedResult(
        is_error=result.is_error,
        blocks=tuple(one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in result.content),
        structured_content=result.structured_content,
        meta=result.meta,
    )


class SharedState(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is doing in the process that runs it."""

    state: Literal["connected", "connecting", "disconnected"] = "connecting"
    error: str | None = None
    since: float | None = None


class ServerOwners(Protocol):
    """Who runs which of the shared servers."""

    def is_own(self, server: str) -> bool:
        """Whether this process runs it. It never blocks."""
        ...

    def take(self, server: str) -> bool:
        """Run it here if nobody does; whether this process runs it now. It may block."""
        ...

    def release(self, servers: list[str]) -> None:
        """Have others run them. It may block."""
        ...

    def holder(self, server: str) -> str | None:
        """The process that runs it, in a word."""
        ...

    def state(self, server: str) -> SharedState | None:
        """How it is doing in another process, where that is known."""
        ...

    async def do(
        self, server: str, request: ServerRequest, may_repeat: bool, here: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Make the request where the server runs: by `here`, if that is this process."""
        ...


def is_shared(settings: ServerSettings) -> bool:
    """Whether only one process may run it."""
    return settings.enabled and settings.transport == "stdio" and not settings.replicate


def block_digest(settings: ServerSettings) -> str:
    """The same for all processes whose configs start the same server: only those share one.

    It is made of what is written: neither secrets nor the folder that a config lies in make a difference.
    """
    decides = (settings.command_line, settings.written_folder, sorted(settings.env))
    return sha256(msgspec.json.encode(decides)).hexdigest()[:DIGEST_DIGITS]


def lease_name(server: str, settings: ServerSettings) -> str:
    """What the process that runs it holds: see `parts_of_lease`."""
    return f"{server}@{block_digest(settings)}"


def parts_of_lease(name: str) -> tuple[str, str]:
    """The server and the digest of its block."""
    server, _, digest = name.rpartition("@")
    return server, digest
