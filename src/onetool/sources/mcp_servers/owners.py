"""Which process runs a server. By default it is this one; `onetool.cluster` has the form for several processes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.settings import ServerSettings

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import UpstreamConnection
    from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

RequestKind = Literal["tool", "prompt", "resource", "tools", "connect", "reconnect"]


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
            case "tools":
                return await connection.count_tools()
            case _:
                raise ToolFailure(f"{self.kind} is not a request to a server")


class SharedState(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is doing in the process that runs it."""

    state: Literal["connected", "connecting", "disconnected"] = "connecting"
    error: str | None = None
    since: float | None = None


class ServerOwners:
    """Says which process runs a server. Here it is this process, which shares none."""

    def is_shared(self, settings: ServerSettings) -> bool:
        """Return whether only one of several processes may run it."""
        return False

    def is_own(self, server: str) -> bool:
        """Return whether this process runs it. Never blocks."""
        return True

    def take(self, server: str) -> bool:
        """Run it here if no process does; return whether this process runs it now. May block."""
        return True

    def release(self, servers: list[str]) -> None:
        """Have others run them. May block."""

    def holder(self, server: str) -> str | None:
        """Return the id of the process that runs it, if several share it."""
        return None

    def state(self, server: str) -> SharedState | None:
        """Return how it is doing in another process, where that is known."""
        return None

    async def do(
        self, server: str, request: ServerRequest, may_repeat: bool, here: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Make the request where the server runs: by `here`, if that is this process."""
        return await here()
