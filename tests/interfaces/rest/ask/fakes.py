"""The interface alone: an app whose answers are written down, and a client without a socket."""

import asyncio
import json
from types import SimpleNamespace

from interfaces.rest.served import read_events

from onetool.ask.errors import AskError
from onetool.ask.events import Answer, Done, Started
from onetool.core.principal import Principal, current_principal
from onetool.core.registry import ToolRegistry
from onetool.interfaces.rest.ask_app import AskApp

STARTED = Started(session_id="s1", is_new=True, provider="openai", model="m")
ANSWER = Answer(answer="Noon.", session_id="s1", provider="openai", model="m", steps=1, stop="end")
SECRET = "sesame"


class Asking:
    """Goes through a script: events, errors to raise, seconds to wait."""

    def __init__(self, script):
        self.script = script
        self.answer = Answer(answer=None)
        self.told = 0
        self.ended = None

    async def events(self):
        self.ended = "early"
        try:
            for one in self.script:
                if isinstance(one, Exception):
                    raise one
                if isinstance(one, float):
                    await asyncio.sleep(one)
                    continue
                self.answer = one.answer if isinstance(one, Done) else self.answer
                if isinstance(one, Started):
                    self.answer = Answer(answer=None, session_id="s1", provider="openai", error={"reason": SECRET})
                self.told += 1
                yield one
            self.ended = "well"
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise

    def __await__(self):
        async def whole():
            async for _ in self.events():
                pass
            return self.answer

        return whole().__await__()


class FakeAudit:
    """Keeps what would be in the audit log."""

    def __init__(self):
        self.noted = []

    def record(self, kind, what, **more):
        self.noted.append((kind, what, more["outcome"]))

    async def begin(self, kind, what, **more):
        pass


class App:
    def __init__(self, *script):
        self.script = script or (STARTED, Done(answer=ANSWER))
        self.asked = []
        self.asking = None
        self.catalog = SimpleNamespace(registry=ToolRegistry())
        self.runtime = SimpleNamespace(redact=self._redact)
        self.audit = FakeAudit()

    def ask(self, prompt, **options):
        self.asked.append((prompt, options))
        self.asking = Asking(self.script)
        return self.asking

    def _redact(self, value, sent=None):
        return json.loads(json.dumps(value).replace(SECRET, "***"))


class Client(SimpleNamespace):
    """What came back, and ways to be slow or to leave."""

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        return list(read_events(self.body.decode()))


async def post(asgi_client, body, accept="*/*", *, kind="application/json", query=b"", reading=None, leaving=None):
    """One request. `reading`: an Event before which nothing is read; `leaving`: one after which the client is gone."""
    asgi_client = asgi_client if isinstance(asgi_client, AskApp) else AskApp(asgi_client)
    client = Client(status=0, headers={}, body=b"", log={})
    parts = [{"type": "http.request", "body": body if isinstance(body, bytes) else json.dumps(body).encode()}]

    async def receive():
        if parts:
            return parts.pop()
        await (leaving or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if reading is not None:
            await reading.wait()
        if message["type"] == "http.response.start":
            client.status = message["status"]
            client.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        client.body += message.get("body", b"")

    headers = [(b"content-type", kind.encode()), (b"accept", accept.encode())]
    scope = {
        "method": "POST",
        "raw_path": b"/ask",
        "query_string": query,
        "headers": headers,
        "onetool.head": dict(headers),
        "log": client.log,
    }
    current_principal.set(Principal(name="p1", owner="p1", role="edit"))
    async with asyncio.timeout(10):
        await asgi_client(scope, receive, send)
    return client


def failing(reason, *hints, kind=AskError, **options):
    return kind(f"it failed with {SECRET}, try --tool-allow", reason, hints, **options)
