"""What the page is tried on: a real server with tools of every source, and an API behind one of them."""

import json
from contextlib import contextmanager
from hashlib import sha256

import httpx
from helpers import definition, until
from interfaces.http.conftest import Served
from upstream import Reply, Upstream

METEO = "01890a5d-ac96-774b-bcce-b302099a8057"
PACK = '''
"""Numbers: a pack for trying the page."""

from dataclasses import dataclass


@dataclass
class Stats:
    count: int
    mean: float


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first one
        b: the second one
    """
    return a + b


def describe(values: list[float], unit: str = "m") -> dict:
    """Say how many values there are, and their mean."""
    return {"count": len(values), "mean": sum(values) / len(values), "unit": unit}


def table(rows: int = 5) -> list:
    """Rows with a name and a square."""
    return [{"name": f"row {n}", "square": n * n} for n in range(rows)]


def fail(reason: str = "it is a test") -> str:
    """Fail with a reason."""
    raise ValueError(reason)
'''
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]}
FORECAST = {
    "type": "http",
    "displayName": "Forecast",
    "description": "The weather of the next days in a city.",
    "tags": ["weather", "outdoors"],
    "argSchema": CITY,
    "outputSchema": {"type": "object", "properties": {"sky": {"type": "string"}, "celsius": {"type": "number"}}},
}
SCRIPT = {
    "type": "script",
    "displayName": "Report",
    "description": "The forecast of a city, in a sentence.",
    "tags": ["weather"],
    "argSchema": CITY,
    "scriptImpl": {"code": "f\"{city}: {meteo.forecast(city=city)['sky']}\""},
}


class Harness:
    """A server that runs, where its page is, and a client of its API: somebody else who uses it, too."""

    def __init__(self, begin, upstream, token=None):
        """`begin` starts the server at a port."""
        self._begin, self.upstream, self.token, self._session = begin, upstream, token, "none yet"
        self.server = server = begin(0)
        self.url = f"http://127.0.0.1:{server.port}/"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.api = httpx.Client(base_url=self.url, headers=headers, timeout=20)

    def session(self):
        """What a browser keeps of somebody who has signed in with the token. One that is still valid will do: a token
        signs in so often, and no more.
        """
        known = self.api.get("/login", headers={"Authorization": f"Bearer {self._session}"}).json()
        if not known.get("signedIn"):
            self._session = self.api.post("/login", json={"token": self.token}).json()["session"]
        return self._session

    def vanish(self):
        """The server is killed: it ends no stream and says nothing."""
        self.server.process.kill()
        self.server.stop()

    def come_back(self):
        """Start the server again, at the same address."""
        self.server = self._begin(self.server.port)

    def put_bundle(self, id, slug, **facts):
        self._put(f"/tools/bundles/{id}", {"slug": slug, **facts})

    def put_tool(self, bundle, slug, tool, version="1"):
        self._put(f"/tools/bundles/{bundle}/tools/{slug}/version/{version}", tool)

    def _put(self, path, body):
        done = self.api.put(path, json=body)
        assert done.status_code in (200, 201), done.text

    def tools(self):
        """All tools by their names in code."""
        listed = self.api.get("/tools/tools?recommendedPageSize=1000&includeDisabled=true").json()["tools"]
        return {one["name"]: one for one in listed if one.get("name")}

    def switch(self, name, is_enabled):
        """What another client does meanwhile."""
        done = self.api.patch(self.path_of(name), json={"isEnabled": is_enabled})
        assert done.status_code == 200, done.text

    def path_of(self, name):
        one = self.tools()[name]
        return f"/tools/bundles/{one['bundleID']}/tools/{one['slug']}/version/{one['version']}"

    def is_enabled(self, name):
        return self.tools()[name]["isEnabled"]


def config(upstream, **more):
    """Mocks, a pack, and a host that HTTP tools may call."""
    mocks = [
        definition("weather"),
        definition(
            "lamp", description="Switches a lamp.", implementation={"type": "mock", "mock_response": {"on": True}}
        ),
    ]
    return {
        "packs": ["packs"],
        "tools": mocks,
        "allowedHosts": [{"host": upstream.netloc, "allowPrivate": True}],
        **more,
    }


def asks(folder, model):
    """What the config says so that a scripted model is asked, and a key for it in the folder."""
    secrets = folder / "secrets.yaml"
    secrets.write_text(json.dumps({"OPENAI_API_KEY": "sk-stand-in-0123456789"}), encoding="utf-8")
    secrets.chmod(0o600)
    ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
    return {"ask": ask, "secrets": "secrets.yaml"}


def named_token(name, token, role, **more):
    """A token of the config, which knows its hash alone."""
    return {"name": name, "hash": f"sha256:{sha256(token.encode()).hexdigest()}", "role": role, **more}


@contextmanager
def harness(folder, token=None, command=None, **more):
    """Start it in this folder. With a token, the page asks for it."""
    (folder / "packs").mkdir()
    (folder / "packs" / "numbers.py").write_text(PACK, encoding="utf-8")
    with Upstream() as upstream:
        upstream.say(Reply(headers={"Content-Type": "application/json"}, body=b'{"sky": "clear", "celsius": 21.5}'))
        http = more.pop("http", {}) | ({"token": token} if token else {})
        given = config(upstream, **more) | ({"http": http} if http else {})

        def begin(port):
            how = {"real": True, "command": command, "env": {"HOME": str(folder)}}
            return Served(folder, "--port", str(port), config=given, **how)

        one = Harness(begin, upstream, token)
        try:
            one.put_bundle(METEO, "meteo", displayName="Meteo", description="Weather of a web API.")
            request = {"urlTemplate": f"{upstream.url}/v1/${{city}}", "query": {"days": "3"}}
            one.put_tool(METEO, "forecast", {**FORECAST, "httpImpl": {"request": request}})
            one.put_tool(METEO, "report", SCRIPT)
            until(lambda: "meteo.report" in one.tools())
            yield one
        finally:
            one.api.close()
            one.server.stop()
