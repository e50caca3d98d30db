"""A process of its own that calls a tool of the protected server, when it is told to: URL DATABASE."""

import asyncio
import sys
from pathlib import Path

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from onetool.database.documents import Documents
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.mcp_servers.oauth import http_auth


async def main(url: str, file: str) -> None:
    auth = http_auth("vault", url, "oauth", Documents(SqliteDatabase(Path(file)), "logins"))
    print("ready", flush=True)
    sys.stdin.readline()
    async with httpx2.AsyncClient(auth=auth) as http, Client(streamable_http_client(url, http_client=http)) as client:
        print((await client.call_tool("peek", {})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
