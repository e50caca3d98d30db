"""The entries of MCP clients for this server."""

from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.app.operations import At, operation
from onetool.app.operations.fields import Query, Url
from onetool.app.own_server import ClientEntry, client_entries
from onetool.sources.bundles.errors import invalid_at


class ClientQuery(Query, frozen=True):
    """The address in the entries."""

    url: Annotated[
        Url | None, Meta(description="The address of this server for clients; default: as in the config.")
    ] = None


class ClientEntries(msgspec.Struct, frozen=True):
    """The entries for this server in the configs of MCP clients."""

    clients: list[ClientEntry]


@operation("GET", "/tools/clients", "Server")
def list_client_entries(at: At, query: ClientQuery) -> ClientEntries:
    """List the entries that MCP clients need to call this server.

    These are the entries that `onetool init --client` writes: with the URL or, for the role edit, with a command that
    starts OneTool on this machine. They contain no secrets.
    """
    try:
        return ClientEntries(client_entries(at.config, query.url, at.may_change))
    except ValueError as error:
        raise invalid_at("/url", str(error)) from None
