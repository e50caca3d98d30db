"""The header under which one replica sends a request to another: nobody else can make, change or repeat one."""

import json
import sqlite3
import time
from contextlib import closing
from http.client import HTTPConnection
from types import SimpleNamespace

import pytest
from cluster.members import KEY

from onetool.cluster.forwarding import ForwardSeal
from onetool.core.principal import Principal

pytestmark = pytest.mark.attack("replicas")

NEWS = json.dumps({"session": "none"}).encode()
NOBODY = Principal(role="edit", owner="(local)")
ADA = Principal(name="ada", owner="ada", role="call")
PATH = b"/cluster/mcp"


def seal(key=KEY, now=0.0):
    return ForwardSeal(key.encode(), SimpleNamespace(id="00000000", now=lambda: time.time() + now))


@pytest.fixture
def target(pair):
    """The replica that is reached over TCP, and its id."""
    server = pair.servers[0]
    with closing(sqlite3.connect(server.folder.parent / "shared.db")) as file, file:
        found = file.execute("SELECT id FROM replicas WHERE address = ?", (server.address,)).fetchone()
    return server, found[0]


def send(server, header, body=NEWS, method="POST", path=PATH, host=None, twice=False):
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path.decode(), skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    connection.putheader("Content-Type", "application/json")
    for _ in range(2 if twice else 1):
        connection.putheader("onetool-forwarded", header)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    said = response.read()
    connection.close()
    return response.status, json.loads(said) if said else None


def test_a_valid_one_is_let_in_once(target):
    server, id = target
    header = seal().write(id, "POST", PATH, ADA, NEWS, "1.2.3.4")
    assert send(server, header, host="elsewhere.example") == (202, None)
    status, said = send(server, header)
    assert (status, said["error"]["code"]) == (401, "bad_forward")
    assert "used already" in said["error"]["message"]


@pytest.mark.parametrize("seconds", [-61, 61])
def test_one_of_another_time(target, seconds):
    server, id = target
    assert send(server, seal(now=seconds).write(id, "POST", PATH, ADA, NEWS, ""))[0] == 401
    assert send(server, seal(now=seconds / 2).write(id, "POST", PATH, ADA, NEWS, ""))[0] == 202


def test_a_token_for_thousands_of_tools_fits(target):
    server, id = target
    tools = tuple(f"github.repos_{number}_{word}" for number in range(1500) for word in ("get", "list"))
    header = seal().write(id, "POST", PATH, Principal(name="ada", owner="ada", tools=tools), NEWS, "")
    assert len(header) < 32 * 1024
    assert send(server, header) == (202, None)


def test_one_of_another_key(target):
    server, id = target
    assert send(server, seal("x" * 64).write(id, "POST", PATH, ADA, NEWS, ""))[0] == 401


def test_one_for_another_replica(target):
    server, _ = target
    assert send(server, seal().write("12345678", "POST", PATH, ADA, NEWS, ""))[0] == 421


def test_one_for_another_request(target):
    server, id = target

    def header(method="POST", path=PATH, body=NEWS):
        return seal().write(id, method, path, ADA, body, "")

    assert send(server, header(body=b"{}"))[0] == 401
    assert send(server, header(path=b"/cluster/mcp?x=1"))[0] == 401
    assert send(server, header(path=b"/mcp"))[0] == 401
    assert send(server, header(method="PUT"))[0] == 401
    assert send(server, header(), twice=True)[0] == 401
    assert send(server, header())[0] == 202


def test_no_bit_of_it_can_be_changed(target):
    server, id = target
    header = seal().write(id, "POST", PATH, ADA, NEWS, "")
    for at in range(0, len(header), 17):
        changed = header[:at] + ("A" if header[at] != "A" else "B") + header[at + 1 :]
        assert send(server, changed)[0] == 401, at
    assert send(server, header)[0] == 202


@pytest.mark.parametrize("path", [b"/mcp", b"/healthz", b"/readyz", b"/tools", b"/nothing"])
def test_a_header_from_outside_is_refused_everywhere(target, path):
    server, _ = target
    for text in ("", "x", "e30", "é".encode().decode("latin-1")):
        assert send(server, text, path=path, method="GET", body=b"")[0] == 401, text


def test_what_was_sent_on_is_not_sent_on_again(target):
    server, id = target  # has no tokens, so a request of ADA that takes 0.1 s ends with 401: her rights have changed
    path = b"/ask/" + b"1" * 40
    status, said = send(server, seal().write(id, "DELETE", path, NOBODY, b"", ""), b"", "DELETE", path)
    assert (status, said["code"]) == (502, "replica_gone")  # nobody has this id; and of one that is there:
    with closing(sqlite3.connect(server.folder.parent / "shared.db")) as file, file:
        ((other,),) = file.execute("SELECT id FROM replicas WHERE id != ?", (id,)).fetchall()
    path = b"/ask/" + other.encode() + b"1" * 32
    status, said = send(server, seal().write(id, "DELETE", path, NOBODY, b"", ""), b"", "DELETE", path)
    assert (status, said["code"]) == (502, "forward_loop")
