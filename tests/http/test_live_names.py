"""Names that lead elsewhere when somebody looks again, and what else could take a request to another place.

Everything is real but the answers of the name system: lookups go through `socket.getaddrinfo`, and public addresses are
led to a server on loopback. Whatever is dialled is written down.
"""

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from types import SimpleNamespace

import httpcore2
import httpx2
import pytest
from http_harness import allowed, certificate, fetched, get, run
from upstream import Reply, Upstream

from onetool.core.errors import OneToolError, ToolFailure
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.client import HttpClient
from onetool.http.errors import UnreachableError
from onetool.sources.mcp_servers import http_transport
from onetool.sources.mcp_servers.http_transport import ServerTransport, reached
from onetool.sources.mcp_servers.upstream_calls import TransportFailure

pytestmark = pytest.mark.attack("DNS and proxies")

PUBLIC, OTHER = "93.184.216.34", "93.184.216.35"
HERE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200"),
    *("168.63.129.16", "192.0.0.192", "198.18.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1"),
    *("::1", "::", "fe80::1", "fe80::1%1", "fe80::1%lo", "fd00:ec2::254", "fec0::1", "ff02::1", "::127.0.0.1"),
    *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::808:808"),
    *("2002:7f00:1::", "2001:0:808:808:0:0:80ff:fffe", "2606:2800::5efe:7f00:1", "2606:2800::1%lo", "100::1"),
    *("", "localhost", "127.1", "0177.0.0.1", "2130706433", "0x7f000001", "evil.test", "127.0.0.1.", "[::1]"),
]


class Names:
    """The name system: what each name leads to, lookup by lookup; the last answer stays."""

    def __init__(self):
        self.answers: dict[str, list[list[str]]] = {}
        self.dialled: list[str] = []
        self.lookups = 0

    def lead(self, name, *answers):
        self.answers[name] = list(answers)

    def addresses(self, name):
        found = self.answers[name]
        return found.pop(0) if len(found) > 1 else found[0]


@pytest.fixture
def names(monkeypatch):
    names, lookup, connect = Names(), socket.getaddrinfo, httpcore2.AnyIOBackend.connect_tcp

    def getaddrinfo(host, port, *args, **options):
        host = host if isinstance(host, str) else host.decode()
        if host not in names.answers:
            return lookup(host, port, *args, **options)
        names.lookups += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names.addresses(host)]

    async def connect_tcp(self, host, port, *args, **options):
        names.dialled.append(host)
        return await connect(self, "127.0.0.1" if host in (PUBLIC, OTHER) else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect_tcp)
    monkeypatch.setattr(http_transport._CheckedNetwork, "_seen_public", set())
    return names


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def client_of(names, **options):
    """A client of HTTP tools."""

    async def connect(factory, address, port, **tls):
        names.dialled.append(address)
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", port, **tls)

    return HttpClient(connect=connect, **options)


def sent_by_tools(names, upstream, *paths, name="a.test"):
    """Send requests one after the other. Return how many were answered, and the refusals."""
    client, hosts = client_of(names), AllowedHosts([HostRule(f"{name}:{upstream.port}")])
    answered, refused = 0, []

    async def main():
        nonlocal answered
        for path in paths:
            try:
                await client.send(get(f"http://{name}:{upstream.port}{path}"), hosts, timeout=5, max_bytes=1_000)
                answered += 1
            except ToolFailure as failure:
                refused.append(str(failure))
        client.close()

    run(main())
    return answered, refused


def sent_to_server(upstream, *paths, url=None, name="mcp.test", transport=None):
    """Send what a connection to an MCP server sends, one after the other, each on a connection of its own."""
    url = url or f"http://{name}:{upstream.port}/mcp"
    answered, refused = 0, []

    async def main():
        nonlocal answered
        async with httpx2.AsyncClient(transport=transport or ServerTransport(url), timeout=5) as client:
            for path in paths:
                try:
                    await client.post(path, json={}, headers={"Connection": "close", "Authorization": "Bearer mine"})
                    answered += 1
                except (OneToolError, httpx2.HTTPError) as failure:
                    refused.append(str(failure))

    run(main())
    return answered, refused


# Addresses


@pytest.mark.parametrize("address", HERE)
@pytest.mark.parametrize("among", ["alone", "the last of many", "the first"])
def test_a_name_that_leads_here(names, upstream, address, among):
    many = [f"93.184.216.{n}" for n in range(50)]
    names.lead(
        "a.test", {"alone": [address], "the last of many": [*many, address], "the first": [address, *many]}[among]
    )
    answered, refused = sent_by_tools(names, upstream, "/")
    assert (answered, len(refused), names.dialled, upstream.seen) == (0, 1, [], [])


@pytest.mark.parametrize("address", [one for one in HERE if one])
def test_a_public_server_that_leads_here_too(names, upstream, address):
    names.lead("mcp.test", [PUBLIC], [PUBLIC, address])
    url = f"http://mcp.test:{upstream.port}/mcp"
    assert sent_to_server(upstream, url, url, url)[0] == 0  # the first connection asks twice: whose it is, and where to
    assert set(names.dialled) <= {PUBLIC}


# Rebinding


@pytest.mark.parametrize("later", [["127.0.0.1"], [PUBLIC, "127.0.0.1"], ["::1"], ["10.0.0.5"], ["::ffff:127.0.0.1"]])
def test_the_next_connection_of_a_tool_is_checked_again(names, upstream, later):
    upstream.say(Reply(close=True))
    names.lead("a.test", [PUBLIC], later)
    answered, refused = sent_by_tools(names, upstream, "/1", "/2")
    assert (answered, len(refused), names.dialled) == (1, 1, [PUBLIC])


def test_a_connection_that_is_kept_stays_where_it_was(names, upstream):
    names.lead("a.test", [PUBLIC], ["127.0.0.1"])
    assert sent_by_tools(names, upstream, "/1", "/2") == (2, [])
    assert (names.dialled, names.lookups) == ([PUBLIC], 1)


def test_what_is_dialled_is_what_was_checked(names, upstream):
    """There is one lookup for each connection, so nothing can differ between check and dial."""
    upstream.say(Reply(close=True))
    names.lead("a.test", [PUBLIC])
    sent_by_tools(names, upstream, *(f"/{n}" for n in range(5)))
    assert names.lookups == len(names.dialled) == 5


def test_a_name_in_capitals_or_with_a_dot_is_the_same_name(names, upstream):
    names.lead("a.test", ["127.0.0.1"])
    for name in ("A.TEST", "a.test.", "A.Test."):
        assert sent_by_tools(names, upstream, "/", name=name)[0] == 0
    assert names.dialled == []


@pytest.mark.parametrize("later", [["127.0.0.1"], [OTHER, "127.0.0.1"], ["::1"], ["10.0.0.5"], ["fe80::1%1"]])
def test_the_next_connection_to_a_server_is_checked_again(names, upstream, later):
    names.lead("mcp.test", [PUBLIC], [PUBLIC], later)
    url = f"http://mcp.test:{upstream.port}/mcp"
    answered, refused = sent_to_server(upstream, url, url)
    assert (answered, names.dialled) == (1, [PUBLIC])
    assert "not a public address" in refused[0]


@pytest.mark.parametrize("later", [["127.0.0.1"], ["10.0.0.5"], [OTHER, "127.0.0.1"]])
def test_a_server_that_was_public_is_public_when_it_is_connected_again(names, upstream, later):
    """It hangs up, and its name leads here when we come back: each connection has a transport of its own."""
    names.lead("mcp.test", [PUBLIC], [PUBLIC], later)
    url = f"http://mcp.test:{upstream.port}/mcp"
    assert sent_to_server(upstream, url)[0] == 1
    answered, refused = sent_to_server(upstream, url)
    assert (answered, names.dialled) == (0, [PUBLIC])
    assert "not a public address" in refused[0]


def test_a_server_of_both_kinds_is_reached_at_neither(names, upstream):
    names.lead("mcp.test", ["10.0.0.5", PUBLIC])
    assert sent_to_server(upstream, f"http://mcp.test:{upstream.port}/mcp")[0] == 0
    assert names.dialled == []


def test_other_names_of_a_public_server(names, upstream):
    names.lead("mcp.test", [PUBLIC])
    names.lead("login.test", [OTHER], ["127.0.0.1"])
    login = f"http://login.test:{upstream.port}/token"
    answered, refused = sent_to_server(upstream, login, login, url=f"http://mcp.test:{upstream.port}/mcp")
    assert (answered, names.dialled) == (1, [OTHER])
    assert "login.test (127.0.0.1)" in refused[0]


# Lookups


def test_a_name_that_never_comes_to_an_answer_holds_up_no_other(names, upstream, monkeypatch):
    over = threading.Event()
    lookup = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **b: over.wait(60) and [] if host == "slow.test" else lookup(host, *a, **b),
    )
    names.lead("a.test", [PUBLIC])
    client = client_of(names)

    async def main():
        slow = [
            asyncio.ensure_future(client.send(get("http://slow.test/"), hosts, timeout=1, max_bytes=9))
            for _ in range(200)
        ]
        fine = await client.send(get(f"http://a.test:{upstream.port}/"), hosts, timeout=30, max_bytes=99)
        return fine.status, {type(one).__name__ for one in await asyncio.gather(*slow, return_exceptions=True)}

    hosts = AllowedHosts([HostRule("slow.test"), HostRule(f"a.test:{upstream.port}")])
    try:
        assert run(main()) == (200, {"ConnectTimeoutError"})
    finally:
        over.set()
        client.close()


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "x\x1b[2J"), OSError("y" * 9), UnicodeError("z"), socket.gaierror(-3, "")]
)
def test_lookups_that_fail(names, upstream, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    answered, refused = sent_by_tools(names, upstream, "/")
    assert (answered, len(refused), names.dialled) == (0, 1, [])


def test_a_name_with_a_thousand_addresses_is_tried_a_few_times(names):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    names.lead("a.test", [f"93.184.{n // 250}.{n % 250}" for n in range(1_000)])
    assert sent_by_tools(names, SimpleNamespace(port=port), "/")[0] == 0
    assert len(names.dialled) <= 16


# Proxies, and other variables of the environment


class Proxy:
    """Something that listens, and notes who comes."""

    def __enter__(self):
        self.visits = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()


VARIABLES = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "WS_PROXY",
    "FTP_PROXY",
]
FORMS = [
    "http://127.0.0.1:{}",
    "https://127.0.0.1:{}",
    "socks5://127.0.0.1:{}",
    "127.0.0.1:{}",
    "http://a:b@127.0.0.1:{}",
]
NO_PROXY = [None, "", "*", "127.0.0.1", "other.test"]


def by_tool(url, upstream):
    assert fetched(upstream, get(url), hosts=allowed(upstream))[0].status == 200


def by_server(url, upstream):
    sent_to_server(upstream, url, url=url)


def by_login(url, upstream):
    async def main():
        async with httpx2.AsyncClient(transport=ServerTransport(url)) as client:
            await client.get(url)

    run(main())


def by_stream(url, upstream, way="http"):
    async def main():
        settings = SimpleNamespace(url=url, headers={}, connect_timeout=2.0)
        async with reached(settings, way, None, TransportFailure()) as (_, outgoing):
            from mcp.shared.message import SessionMessage
            from mcp_types import JSONRPCRequest

            await outgoing.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            await asyncio.sleep(0.1)

    try:
        run(main())
    except BaseExceptionGroup:
        assert way == "sse"  # nothing there answers as such a server does


def by_old_stream(url, upstream):
    by_stream(url, upstream, "sse")


@pytest.fixture
def bare(monkeypatch):
    for name in [*os.environ]:
        if "proxy" in name.lower():
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("way", [by_tool, by_server, by_login, by_stream, by_old_stream])
@pytest.mark.parametrize("no_proxy", NO_PROXY)
def test_no_request_takes_a_way_over_a_proxy(bare, upstream, way, no_proxy):
    """A proxy would look names up itself, after the check."""
    with Proxy() as proxy:
        for form in FORMS:
            for name in VARIABLES:
                bare.setenv(name, form.format(proxy.port))
            if no_proxy is not None:
                bare.setenv("NO_PROXY", no_proxy)
                bare.setenv("no_proxy", no_proxy)
            way(f"{upstream.url}/", upstream)
        assert upstream.seen != []
        assert proxy.visits == 0


@pytest.mark.parametrize("way", [by_tool, by_server, by_login, by_stream])
def test_no_request_takes_a_login_from_a_file(bare, upstream, way, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hunter22\ndefault login a password b\n")
    (tmp_path / ".netrc").chmod(0o600)
    bare.setenv("HOME", str(tmp_path))
    bare.setenv("NETRC", str(tmp_path / ".netrc"))
    way(f"{upstream.url}/", upstream)
    told = [one.headers.get("authorization") for one in upstream.seen]
    assert told
    assert not [one for one in told if one and one != "Bearer mine"]


# Names in certificates


CERTIFICATES = {
    "another name": "subjectAltName=DNS:b.test",
    "the address alone": "subjectAltName=IP:127.0.0.1",
    "its address as a name": "subjectAltName=DNS:93.184.216.34",
    "the name above": "subjectAltName=DNS:test",
    "a name below": "subjectAltName=DNS:x.a.test",
    "a star for all": "subjectAltName=DNS:*",
    "a star above": "subjectAltName=DNS:*.test.a",
    "a star within": "subjectAltName=DNS:a*.a.test",
    "a star too low": "subjectAltName=DNS:*.a.test",
    "a mail address": "subjectAltName=email:x@a.test",
    "an address of a page": "subjectAltName=URI:https://a.test/",
    "a common name alone": "subjectAltName=DNS:c.test",
    "a name that begins so": "subjectAltName=DNS:a.test.evil.test",
    "a name that ends so": "subjectAltName=DNS:evila.test",
}


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_a_certificate_of_somebody_else(names, tmp_path, monkeypatch, kind):
    """Its maker is trusted: the name alone is wrong."""
    key, crt = tmp_path / "k", tmp_path / "c"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=a.test"]
    where = ["-keyout", str(key), "-out", str(crt), "-addext", CERTIFICATES[kind]]
    subprocess.run(["openssl", "req", "-x509", *made, *where], check=True, capture_output=True, timeout=60)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(crt, key)
    names.lead("a.test", [PUBLIC])
    with Upstream(tls=server) as upstream:
        hosts = AllowedHosts([HostRule(f"a.test:{upstream.port}")])
        monkeypatch.setenv("SSL_CERT_FILE", str(crt))
        with pytest.raises(UnreachableError, match="is not accepted"):
            fetched(upstream, get(f"https://a.test:{upstream.port}/"), client=client_of(names), hosts=hosts)
        assert sent_to_server(upstream, f"https://a.test:{upstream.port}/", name="a.test")[0] == 0
        assert upstream.seen == []


def test_a_certificate_of_another_maker(names, tmp_path):
    server, _ = certificate(tmp_path, "a.test")
    names.lead("a.test", [PUBLIC])
    with Upstream(tls=server) as upstream:
        hosts = AllowedHosts([HostRule(f"a.test:{upstream.port}")])
        with pytest.raises(UnreachableError, match="is not accepted"):
            fetched(upstream, get(f"https://a.test:{upstream.port}/"), client=client_of(names), hosts=hosts)
        assert upstream.seen == []
        assert sent_to_server(upstream, f"https://a.test:{upstream.port}/", name="a.test")[0] == 0
