"""A public MCP server can't send us to this machine or its network by what it says of its login."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpcore2
import pytest
from document_stores import in_home
from upstream import Reply, Upstream

from onetool.core.errors import OneToolError, ToolFailure
from onetool.sources.mcp_servers.http_transport import reached
from onetool.sources.mcp_servers.oauth import http_auth, login
from onetool.sources.mcp_servers.upstream_calls import TransportFailure

pytestmark = pytest.mark.attack("wire")

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "93.184.216.35"
NAMES = {
    "mcp.example.com": [PUBLIC],
    "intern.example.com": ["10.0.0.5"],
    "mixed.example.com": [OTHER_PUBLIC, "192.168.0.1"],
    "six.example.com": ["fd00::1"],
    "mapped.example.com": ["::ffff:10.0.0.1"],
    "login.example.com": [OTHER_PUBLIC],
    "intern.mcp.example.com": ["10.0.0.7"],
}
NEAR = [
    *("127.0.0.1", "localhost", "[::1]", "10.0.0.5", "169.254.169.254", "192.168.1.1", "0.0.0.0", "[::ffff:127.0.0.1]"),
    *("127.1", "2130706433", "0x7f000001", "100.64.0.1", "intern.example.com", "mixed.example.com", "six.example.com"),
    *("mapped.example.com", "[fe80::1]", "[64:ff9b::7f00:1]"),
]


@pytest.fixture
def network(monkeypatch):
    """Names and public addresses of our own; what is dialled is noted. Only the server itself is there."""
    dialled, lookup = [], socket.getaddrinfo
    connect = httpcore2.AnyIOBackend.connect_tcp

    def getaddrinfo(host, port, *args, **options):
        found = NAMES.get(host if isinstance(host, str) else host.decode())
        if found is None:
            return lookup(host, port, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    async def connect_tcp(self, host, port, *args, **options):
        dialled.append(host)
        return await connect(
            self, "127.0.0.1" if host in (PUBLIC, "intern.mcp.example.com") else host, port, *args, **options
        )

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect_tcp)
    return dialled


def answers(port, near, step):
    """What the server says: `step` is where the address in `near` is first named."""
    own, there = f"http://mcp.example.com:{port}", f"https://{near}"

    def answer(seen):
        path = seen.target
        if path == "/mcp":
            named = f"{there}/resource" if step == "resource" else f"{own}/resource"
            return Reply(401, {"WWW-Authenticate": f'Bearer resource_metadata="{named}"'})
        if path == "/resource":
            return told({"resource": f"{own}/mcp", "authorization_servers": [there if step == "server" else own]})
        if "oauth-authorization-server" in path:
            if step == "redirect":
                return Reply(307, {"Location": f"{there}/x"})
            registration = there if step == "registration" else own
            endpoints = {"authorization_endpoint": f"{own}/authorize", "token_endpoint": f"{own}/token"}
            challenge = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
            return told({"issuer": own, **endpoints, **challenge, "registration_endpoint": f"{registration}/register"})
        return Reply(404)

    return answer


def told(value):
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def logged_in(url, folder):
    async def main():
        await login("vault", url, "oauth", folder, lambda text: None, browse=lambda page: None, seconds=10)

    asyncio.run(main())


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("step", ["resource", "server", "registration"])
def test_metadata_lead_to_public_addresses_only(network, tmp_path, near, step):
    with Upstream() as upstream:
        upstream.say(answers(upstream.port, near, step))
        with pytest.raises(OneToolError, match="not a public address"):
            logged_in(f"http://mcp.example.com:{upstream.port}/mcp", in_home(tmp_path, "logins"))
    assert set(network) == {PUBLIC}


def test_a_redirect_of_metadata_leads_nowhere(network, tmp_path):
    with Upstream() as upstream:
        upstream.say(answers(upstream.port, "127.0.0.1", "redirect"))
        with pytest.raises(OneToolError):
            logged_in(f"http://mcp.example.com:{upstream.port}/mcp", in_home(tmp_path, "logins"))
    assert set(network) == {PUBLIC}


def test_the_same_name_leads_nowhere_else_later(network, tmp_path, monkeypatch):
    """DNS rebinding: the server's own name leads to this machine when its metadata are asked for."""
    with Upstream() as upstream:

        def answer(seen):
            monkeypatch.setitem(NAMES, "mcp.example.com", ["127.0.0.1"])
            return Reply(401, close=True)

        upstream.say(answer)
        with pytest.raises(OneToolError, match="not a public address"):
            logged_in(f"http://mcp.example.com:{upstream.port}/mcp", in_home(tmp_path, "logins"))
    assert network == [PUBLIC]


@asynccontextmanager
async def connected(url, folder):
    settings = SimpleNamespace(url=url, headers={}, connect_timeout=5.0)
    auth = http_auth("vault", url, {"type": "client_credentials", "client_id": "a", "client_secret": "b"}, folder)
    async with reached(settings, "http", auth, TransportFailure()) as (incoming, outgoing):
        yield incoming, outgoing


@pytest.mark.parametrize("step", ["resource", "server"])
def test_connections_in_the_background_hold_to_it(network, tmp_path, step):
    from mcp.client import ClientSession

    async def main(url):
        async with (
            asyncio.timeout(10),
            connected(url, in_home(tmp_path, "logins")) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()

    with Upstream() as upstream:
        upstream.say(answers(upstream.port, "127.0.0.1", step))
        with pytest.raises(BaseException) as failed:  # noqa: PT011 - a group, an MCPError or ours
            asyncio.run(main(f"http://mcp.example.com:{upstream.port}/mcp"))
    assert not isinstance(failed.value, ToolFailure) or "refused" in str(failed.value)
    assert set(network) == {PUBLIC}


def test_a_private_server_may_have_a_private_login(network, tmp_path):
    with Upstream() as login_server, Upstream() as upstream:
        login_server.say(Reply(404))
        named = f'Bearer resource_metadata="http://127.0.0.1:{login_server.port}/resource"'
        upstream.say(lambda seen: Reply(401, {"WWW-Authenticate": named}))
        with pytest.raises(OneToolError):
            logged_in(f"http://127.0.0.1:{upstream.port}/mcp", in_home(tmp_path, "logins"))
        assert login_server.seen[0].target == "/resource"
