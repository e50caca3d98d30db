"""A server with the REST API, in a process of its own, and the shortest ways to talk to it."""

import json
import os
import re
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from document_stores import stored_tokens
from helpers import start, trusted

from onetool.core.model_providers import PROVIDER_KEYS

STAND_IN = Path(__file__).with_name("stand_in.py")
PATIENCE = 60
BUILT_IN = "01890a5d-0000-7000-8000-000000000001"
TOKEN = "sesame-token-0123456789"


class Event(NamedTuple):
    name: str
    data: dict


class Api:
    """A server that runs, and the shortest ways to talk to it."""

    def __init__(self, **options):
        """The API over a store in memory; with `real=FOLDER` it is `onetool serve`, with its state in there.

        What is further in `env` counts for a real one, and `args` are further options of it.
        """
        real = options.get("real")
        command = (
            partial(start, "serve", "--port", "0", *options.get("args", ()))
            if real
            else partial(start, json.dumps(options), script=STAND_IN)
        )
        self.process = command(
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                **({"ONETOOL_HOME": str(real), "HOME": str(real)} if real else {}),
                **options.get("env", {}),
            },
            cwd=real,
        )
        found = re.search(rb"(\d+)\s", self.process.stdout.readline().rpartition(b":")[2])
        assert found, "it did not start"
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE, headers={"Content-Type": "application/json"})
        self._last = 0

    def ask(self, method, path, json=None, **options):
        if json is not None:
            options["json"] = json
        return self.client.request(method, path, **options)

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def raw(self, method, target, body=b"", headers=()):
        """A request whose target no library has put in order."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers] + [f"Content-Length: {len(body)}", "", ""]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as one:
            one.sendall("\r\n".join(lines).encode("latin-1") + body)
            data = b""
            while piece := one.recv(65536):
                data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        found = dict(re.findall(r"(?m)^([\w-]+): (.*?)\r?$", head.decode("latin-1")))
        return httpx.Response(int(head.split()[1]), headers=found, content=rest)

    def new_id(self):
        self._last += 1
        return f"01890a5d-ac96-774b-bcce-{self._last:012x}"

    def bundle(self, **content):
        """A new one; where it is."""
        path = f"/tools/bundles/{self.new_id()}"
        reply = self.ask("PUT", path, {"slug": "mine", **content})
        assert reply.status_code == 201, reply.text
        return path

    def tool(self, bundle=None, slug="echo", version="1", **content):
        path = f"{bundle or self.bundle()}/tools/{slug}/version/{version}"
        reply = self.ask("PUT", path, {**ECHO, **content})
        assert reply.status_code == 201, reply.text
        return path

    def call(self, slug, args=None, **options):
        body = {} if args is None else {"args": args}
        return self.ask("POST", f"/tools/bundles/{BUILT_IN}/tools/{slug}/version/1/invoke", body, **options)

    def events(self, slug, args=None):
        reply = self.call(slug, args, headers={"Accept": "text/event-stream"})
        assert reply.headers["content-type"] == "text/event-stream"
        return list(read_events(reply.text))

    def stop(self):
        self.client.close()
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.stdout.close()


ECHO = {
    "type": "python",
    "pythonImpl": {"func": "echo"},
    "tags": ["a"],
    "argSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}


def sign_in_as_admin(api, home):
    """From now on the client shows a token of an admin, which is kept in the server's state."""
    token = stored_tokens(Path(home)).add("admin", role="admin")
    api.client.headers["Authorization"] = f"Bearer {token}"


def with_model(folder, model, **config):
    """Write a config whose model is a stand-in, and give the environment for that: there is no other one in it."""
    (folder / ".onetool").mkdir()
    ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
    (folder / ".onetool" / "onetool.yaml").write_text(json.dumps({"ask": ask, **config}))
    trusted(folder)
    return {**dict.fromkeys(PROVIDER_KEYS, ""), "OLLAMA_HOST": model.urls["ollama"]}


def read_events(text):
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            yield Event(fields["event"], json.loads(fields["data"]))


def problem(reply, status, code):
    """Assert that it is one, and give it."""
    assert reply.headers["content-type"] == "application/problem+json", reply.text
    data = reply.json()
    assert (reply.status_code, data["status"], data["code"]) == (status, status, code), data
    assert data["type"] == "about:blank"
    assert data["title"]
    assert data["detail"]
    return data


def with_head(app):
    """A route as an app of its own: its headers are read, as `Guard` does it."""
    return lambda scope, *others: app({**scope, "onetool.head": dict(scope["headers"])}, *others)
