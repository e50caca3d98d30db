"""A client of `onetool.asgi`, for apps whose model is a stand-in: with users, and streams read as they come."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

from interfaces.rest.served import Event

import onetool

PATIENCE = 60


class AsgiClient:
    """Requests to an ASGI app, each with its user."""

    def __init__(self, site):
        self.site = site

    async def send(
        self, method, path, body=None, *, data=None, user="ada", accept="*/*", headers=(), send=None, leaving=None
    ):
        """With `data`, that is the body as it is."""
        path, _, query = path.partition("?")
        if data is None:
            data = b"" if body is None else json.dumps(body).encode()
        head = {"host": "localhost", "x-user": user, "accept": accept}
        head |= {"content-type": "application/json", "content-length": str(len(data))} if method != "GET" else {}
        head |= {name.lower(): value for name, value in dict(headers).items()}
        parts = [{"type": "http.request", "body": data}]
        reply = SimpleNamespace(status=0, headers={}, body=b"")

        async def receive():
            if parts:
                return parts.pop()
            await (leaving or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def take(message):
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            reply.body += message.get("body", b"")
            if send is not None:
                send(message.get("body", b""))

        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("localhost", 80)}
        scope |= {"http_version": "1.1", "scheme": "http", "principal": user, "log": {}}
        scope["headers"] = [(name.lower().encode(), value.encode()) for name, value in head.items()]
        scope["onetool.head"] = dict(scope["headers"])
        async with asyncio.timeout(PATIENCE):
            await self.site(scope, receive, take)
        reply.json = json.loads(reply.body) if reply.headers.get("content-type", "").endswith("json") else None
        return reply

    @asynccontextmanager
    async def asking(self, prompt="Do it.", user="ada", **body):
        """A question with a stream. Its client leaves at the end of the block."""
        stream = Stream()
        body = {"prompt": prompt, "approve": "ask", **body}
        sending = self.send(
            "POST", "/ask", body, user=user, accept="text/event-stream", send=stream.feed, leaving=stream.leaving
        )
        stream.task = asyncio.create_task(sending)
        try:
            yield stream
        finally:
            stream.leaving.set()
            await stream.task

    async def decide(self, told, approve=True, **options):
        body = {"approve": approve}
        return await self.send("POST", f"/ask/{told['question']}/approvals/{told['call']}", body, **options)


class Stream:
    """Events of a stream as they come."""

    def __init__(self):
        self.events = []
        self.leaving = asyncio.Event()
        self.task = None
        self._text = ""
        self._more = asyncio.Event()

    def feed(self, data):
        self._text += data.decode()
        *blocks, self._text = self._text.split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if fields:
                self.events.append(Event(fields["event"], json.loads(fields["data"])))
        self._more.set()

    async def next(self, name, place=0):
        """The data of an event of that name: the first one, or the one at that place."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = [one.data for one in self.events if one.name == name]
                if len(found) > place:
                    return found[place]
                self._more.clear()
                await self._more.wait()

    async def end(self):
        """The last event, when the stream has ended."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(self.task)
        return self.events[-1]


def users(app, **options):
    """A client of an app whose web app knows its users."""
    return AsgiClient(
        onetool.asgi(app, auth=lambda scope: dict(scope["headers"])[b"x-user"].decode(), hosts=["localhost"], **options)
    )


def person(app, **options):
    """A client of an app that has one user: its sessions are theirs."""
    return AsgiClient(onetool.asgi(app, hosts=["localhost"], **options))
