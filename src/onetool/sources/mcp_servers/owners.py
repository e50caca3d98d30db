"""Decides which process runs a server: by default, this one.

`onetool.cluster` implements this for several processes.
"""

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
    """A request to a server as data, so that another process can send it; see `Work`."""

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
    """The state of a server in the process that runs it."""

    state: Literal["connected", "connecting", "disconnected"] = "connecting"
    error: str | None = None
    since: float | None = None


class ServerOwners:
    """The assignment of servers to processes. In this class, this process runs all servers and shares none."""

    def is_shared(self, settings: ServerSettings) -> bool:
        """Return whether only one of several processes may run the server."""
        return False

    def is_own(self, server: str) -> bool:
        """Return whether this process runs the server. Never blocks."""
        return True

    def take(self, server: str) -> bool:
        """Claim the server if no process runs it. Return whether this process runs it now. May block."""
        return True

    def release(self, servers: list[str]) -> None:
        """Release the servers, so that other processes can run them. May block."""

    def holder(self, server: str) -> str | None:
        """Return the id of the process that runs a shared server."""
        return None

    def state(self, server: str) -> SharedState | None:
        """Return the state of the server in another process, if known."""
        return None

    async def do(
        self, server: str, request: ServerRequest, may_repeat: bool, here: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Send the request in the process that runs the server. If this is that process, call `here`."""
        return await here()
