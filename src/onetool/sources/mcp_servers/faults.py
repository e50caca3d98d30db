"""What can go wrong with a server, in words for whoever uses it."""

import re
from typing import TypeGuard

import anyio
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.failure import cut, text_of, words_for
from onetool.sources.mcp_servers.oauth_trouble import trouble_in
from onetool.sources.mcp_servers.trouble import Trouble

LONGEST = 600
# Words of a refusal that is about who we are.
_OF_LOGINS = re.compile(r"log.?in|sign.?in|auth|token|credential|api.?key", re.IGNORECASE)
# Servers use this code for all sorts of things; with these words it is the SDK's own.
CLOSED = "Connection closed"
CUT_SHORT = ("SSE stream ended", "SSE stream failed", "server answered a request with 202")


class Ended(ToolFailure):
    """The process ended before it was connected."""


class Refused(ToolFailure):
    """The web server said no."""

    status: int | None = None


def is_closed(error: BaseException) -> bool:
    """Whether it says that the connection is closed."""
    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError):
        return True
    return _says_closed(error) and error.message == CLOSED


def is_cut_short(error: BaseException) -> bool:
    """Whether it says that there will be no answer to this request, though the connection may serve others."""
    return _says_closed(error) and error.message.startswith(CUT_SHORT)


def _says_closed(error: BaseException) -> TypeGuard[MCPError]:
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def why(error: BaseException) -> str:
    """Why a connection could not be opened, or was lost. Of a group, its first cause."""
    found = trouble_in(error) or cause(error)
    if isinstance(found, OneToolError):
        return text_of(found)
    if isinstance(found, MCPError):
        return f"it refuses: {found.message}"
    if isinstance(found, ValidationError):
        return f"it answers with something that is not MCP: {_first_fault(found)}"
    return words_for(found)


def failure(error: BaseException, on_the_way: str | None) -> ToolFailure:
    """Of a call that was answered with an error, or with something else than an answer."""
    if isinstance(error, ToolFailure):
        return error
    if isinstance(error, MCPError):
        words = error.message or f"error {error.code}"
        return ToolFailure(cut(f"{words} ({on_the_way})" if on_the_way else words, LONGEST))
    if isinstance(error, ValidationError):
        return ToolFailure(f"its answer is not what MCP allows: {_first_fault(error)}", reason="output_invalid")
    return ToolFailure(cut(why(error), LONGEST))


def cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def advice(trouble: Trouble) -> str:
    """What to do about the answer of a web server."""
    match trouble.status:
        case 403 if trouble.said and not _OF_LOGINS.search(trouble.said):
            return ""
        case 401 | 403:
            return "; it wants a login: see auth and headers in its block of the config"
        case 404:
            return "; there is no MCP server at this url"
        case _:
            return ""


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    return cut(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}", 200)
