"""What the tests of bundles share: a server with its folder, an upstream API, and a client that speaks plain HTTP."""

import json
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import quote, urlencode

from helpers import until
from interfaces.mcp.servers import Server
from upstream import Upstream

from onetool.sources.bundles.names import new_id

TOKEN = "s3cret-of-the-weather"
PACK = '''

def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

def lie() -> int:
    """Say a number."""
    return "no number"

def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)
'''


class Reply(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Api:
    """The REST API of a server. `now` gives ids their time."""

    def __init__(self, folder):
        self.folder = folder
        self.upstream = Upstream()
        self.upstream.__enter__()
        (folder / "packs").mkdir()
        (folder / "packs" / "sums.py").write_text(PACK)
        config = {
            "packs": ["packs"],
            "secrets": {"WEATHER_TOKEN": TOKEN},
            "allowedHosts": [{"host": self.upstream.netloc, "allowPrivate": True}],
        }
        (folder / "onetool.yaml").write_text(json.dumps(config))
        self.server = Server(folder, config=folder / "onetool.yaml")

    def close(self):
        self.server.stop()
        self.upstream.__exit__()

    def ask(self, method, path, body=None, headers=None, **query):
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        try:
            target = f"/tools{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
            data = None if body is None else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, target, data, {**kind, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def bundle(self, slug="weather", **more):
        """A new bundle's id."""
        id = new_id(1_790_000_000)
        reply = self.ask("PUT", f"/bundles/{id}", {"slug": slug, "displayName": slug, **more})
        assert reply.status == 201, reply
        return id

    def put(self, bundle, slug="forecast", version="1", **tool):
        return self.ask("PUT", place(bundle, slug, version), tool or self.http("/x"))

    def made(self, bundle, slug="forecast", version="1", **tool):
        reply = self.put(bundle, slug, version, **tool)
        assert reply.status == 201, reply
        return reply.json

    def get(self, bundle, slug="forecast", version="1"):
        return self.ask("GET", place(bundle, slug, version))

    def invoke(self, bundle, slug="forecast", version="1", headers=None, **args):
        return self.ask("POST", place(bundle, slug, version) + "/invoke", {"args": args}, headers)

    def http(self, path, properties=None, required=(), response=None, limits=None, **request):
        """An HTTP tool whose API is the upstream."""
        schema = {"type": "object", "properties": properties or {}, "required": list(required)}
        impl = {"request": {"urlTemplate": self.upstream.url + path, **request}}
        return {
            "type": "http",
            "description": "What the weather will be",
            "argSchema": schema,
            "httpImpl": impl | ({"response": response} if response else {}),
            **({"limits": limits} if limits else {}),
        }


def place(bundle, slug="forecast", version="1"):
    return f"/bundles/{bundle}/tools/{quote(slug, safe='')}/version/{quote(version, safe='')}"


ADD = {
    "type": "python",
    "description": "Add numbers",
    "argSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "outputSchema": {"type": "integer"},
    "pythonImpl": {"func": "sums.add"},
}

__all__ = ["ADD", "PACK", "TOKEN", "Api", "Reply", "place", "until"]
