"""One caller can't hold up the others: a token that may call only `time.*` tries, and an admin is answered meanwhile."""

import json
import socket
from contextlib import ExitStack, closing, suppress

import httpx
import pytest
from helpers import until
from interfaces.rest.served import Api

from onetool.services.access_tokens import FOLDER, TokenStore

pytestmark = pytest.mark.attack("other callers")
SLOTS = 8  # of the sandbox, and runs of one caller that REST takes at once


class Callers:
    """A server, and two callers: `guest` may call `time.*`, `admin` may do everything."""

    def __init__(self, home, **config):
        config = {"http": {"max_body_mb": 40}, **config}
        (home / "onetool.yaml").write_text(json.dumps(config))
        tokens = TokenStore(home / FOLDER)
        made = {
            "guest": tokens.add("guest", role="call", tools=("time.*",)),
            "admin": tokens.add("admin", role="admin"),
        }
        self.api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
        self.guest, self.admin = (
            httpx.Client(
                base_url=self.api.url,
                timeout=60,
                headers={"Content-Type": "application/json", "Authorization": f"Bearer {made[name]}"},
            )
            for name in ("guest", "admin")
        )

    def begin_run(self, code):
        """Start a run of the guest. Closing the socket stops it."""
        body = json.dumps({"code": code}).encode()
        request = self.guest.build_request("POST", "/run", content=body, headers={"Accept": "text/event-stream"})
        lines = [b"POST /run HTTP/1.1", *(name + b": " + value for name, value in request.headers.raw), b"", body]
        client = socket.create_connection(("127.0.0.1", self.api.port))
        client.sendall(b"\r\n".join(lines))
        client.setblocking(False)
        return client

    def stop(self):
        self.guest.close()
        self.admin.close()
        self.api.stop()


@pytest.fixture(scope="module")
def callers(tmp_path_factory):
    running = Callers(tmp_path_factory.mktemp("home"))
    yield running
    running.stop()


def run(client, code):
    return client.post("/run", json={"code": code}).json()


def received(client, text):
    """Return whether the client has received a text, without waiting for it."""
    with suppress(BlockingIOError):
        return text in client.recv(65536, socket.MSG_PEEK)
    return False


def test_endless_runs_of_one_caller_leave_half_of_the_slots(callers):
    """Eight of them took all eight slots."""
    with ExitStack() as stack:
        code = "print('begun')\nwhile True: pass"
        endless = [stack.enter_context(closing(callers.begin_run(code))) for _ in range(SLOTS)]
        until(lambda: sum(received(one, b"begun") for one in endless) >= SLOTS // 2)
        assert [run(callers.admin, "1+1")["value"] for _ in range(5)] == [2] * 5
        assert sum(received(one, b"begun") for one in endless) == SLOTS // 2
        assert not any(received(one, b"event: error") for one in endless)
