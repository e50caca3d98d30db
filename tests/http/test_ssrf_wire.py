"""Every case of `data/ssrf.json` down to the wire: a real upstream on loopback, and the bytes that it saw.

Names resolve as the case says, to a public address where it says nothing. Whatever address is dialled is written down,
and led to the upstream, so that a request to a wrong one would be seen and not just fail.
"""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from onetool.core.context import current_call
from onetool.core.errors import ToolFailure
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.client import HttpClient, HttpContext
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.http.placeholders import TemplateError
from onetool.http.tool import HttpTool

pytestmark = pytest.mark.attack("URLs")

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "ssrf.json").read_text())
PUBLIC = "93.184.216.34"
SECRET = "sesame-0815"


class World:
    """Everything outside of the client: names, addresses, and one server behind all of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.names = {name: list(answers) for name, answers in case.get("resolver", {}).items()}
        self.statuses = list(case.get("upstream", [200]))
        self.redirects = list(case.get("redirect", []))
        self.flood = case.get("upstreamBody")
        self.dialled: list[str] = []
        self.requests: list[bytes] = []
        self.port = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        answers = self.names.get(host, [[PUBLIC]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def connect(self, factory: Any, address: str, port: int, **tls: Any) -> tuple[Any, Any]:
        self.dialled.append(address)
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                self.requests.append(head + await reader.readexactly(sum(length)))
                await self.answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, writer: asyncio.StreamWriter) -> None:
        if self.flood == "slow":
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)
        elif self.flood == "headers":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            for number in range(100_000):
                writer.write(b"X-%d: %s\r\n" % (number, b"x" * 1000))
                await writer.drain()
        else:
            status, more = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0], ""
            if self.redirects:
                step = self.redirects.pop(0)
                status, more = step["status"], f"Location: {step['location']}\r\n"
            # A new connection for each: what a name leads to by then counts.
            head = f"HTTP/1.1 {status} X\r\n{more}Connection: close\r\nContent-Length: 2\r\n\r\n"
            writer.write(head.encode() + b"{}")
            writer.close()


async def call(case: dict[str, Any], world: World, **more: Any) -> Any:
    """The value of the tool's call; what it raises is for the test to expect."""
    request = {key: case[key] for key in ("urlTemplate", "method", "query", "headers", "body") if key in case}
    impl = msgspec.convert({"request": {"timeoutMs": 400, "retries": 1} | request | more}, HttpImpl)
    schema = {"type": "object", "properties": {name: {} for name in case["args"]}}
    hosts = AllowedHosts([HostRule(entry) for entry in case["allowedHosts"]])
    server = await asyncio.start_server(world.serve, "127.0.0.1", 0)
    world.port = server.sockets[0].getsockname()[1]
    client = HttpClient(resolve=world.resolve, connect=world.connect, tls=lambda: object())
    environment = SimpleNamespace(secret={"SECRET": SECRET}.get, redact=lambda value, sent=None: value)
    token = current_call.set(SimpleNamespace(notes={}, environment=environment, progress=None))  # pyright: ignore
    try:
        tool = HttpTool(impl, schema, ToolLimits(), lambda: HttpContext(client, hosts, store_result=lambda *_: None))  # pyright: ignore
        return await asyncio.wait_for(tool(**case["args"]), 10)
    finally:
        current_call.reset(token)
        client.close()
        server.close()
        await asyncio.sleep(0)


def sent(request: bytes) -> tuple[str, dict[str, str], bytes]:
    """The request line, the headers and the body of what the upstream saw."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    pairs = [field.split(": ", 1) for field in fields]
    assert len({name.lower() for name, _ in pairs}) == len(pairs)  # none is there twice
    return line, {name.lower(): value for name, value in pairs}, body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    world = World(case)
    if case["expect"] == "reject":
        with pytest.raises((TemplateError, ToolFailure)) as refused:
            asyncio.run(call(case, world))
        assert SECRET not in str(refused.value)
        assert set(world.dialled) <= {PUBLIC}
        if not {"redirect", "upstream", "upstreamBody"} & case.keys():
            assert world.requests == []
        return
    assert asyncio.run(call(case, world)) == {}
    assert world.dialled == [PUBLIC]
    assert len(world.requests) == 1
    line, headers, body = sent(world.requests[0])
    _, _, rest = case.get("effectiveUrl", case["urlTemplate"]).partition("://")
    host, _, target = rest.partition("/")
    assert line == f"{case.get('method', 'GET')} /{target} HTTP/1.1"
    assert headers["host"] == host
    assert body.decode() == case.get("effectiveBody", "")
    assert {name.lower(): value for name, value in case.get("headers", {}).items()}.items() <= headers.items()
    allowed = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "onetool-call"}
    assert headers.keys() <= allowed | {name.lower() for name in case.get("headers", {})}


REDIRECTS = {case["id"]: case for case in CASES if "redirect" in case}
TO_AN_ALLOWED_HOST = REDIRECTS.pop("redirect-auth-strip")


@pytest.mark.parametrize("case", REDIRECTS.values(), ids=REDIRECTS)
def test_redirects_that_are_followed_pass_the_same_checks(case: dict[str, Any]) -> None:
    world = World(case)
    with pytest.raises(ToolFailure):
        asyncio.run(call(case, world, followRedirects=True))
    assert world.dialled == [PUBLIC]
    assert len(world.requests) == 1


def test_a_redirect_to_another_origin_loses_what_is_secret() -> None:
    world = World(TO_AN_ALLOWED_HOST)
    assert asyncio.run(call(TO_AN_ALLOWED_HOST, world, followRedirects=True)) == {}
    first, second = (sent(request)[1] for request in world.requests)
    assert first["authorization"] == f"Bearer {SECRET}"
    assert second["host"] == "other.example.com"
    assert SECRET.encode() not in world.requests[1]


def test_all_addresses_of_a_name_are_checked_before_one_is_dialled() -> None:
    case = {"urlTemplate": "http://a.test/", "args": {}, "allowedHosts": ["a.test"]}
    world = World(case | {"resolver": {"a.test": [[PUBLIC, "10.0.0.5"]]}})
    with pytest.raises(ToolFailure, match=r"a\.test resolves to 10\.0\.0\.5"):
        asyncio.run(call(case, world))
    assert world.dialled == []
