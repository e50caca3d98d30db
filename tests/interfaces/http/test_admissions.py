"""What lasts ends with the token that it came with: streams of every kind, and calls that run. Others' go on."""

import json
import time
from datetime import UTC, datetime
from itertools import count

import pytest
from ask.stand_in import Says, StandIn, Wants
from helpers import check_each, cli, until
from interfaces.http.lasting import LastingRequest
from interfaces.http.matrix import token_entry, token_of
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG, Server, environment

pytestmark = pytest.mark.attack("the one store")

SECONDS = 10  # in which all of them end: less than the 15 s after which /events says that it is still there
KEEPER = "keeper"  # whose token stays


@pytest.fixture(scope="module")
def model():
    with StandIn() as running:
        yield running


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("admissions")
    (folder / "packs").symlink_to(CONFIG.parent / "packs")
    running = Server(folder, config=write_config(folder, model, [token_entry(KEEPER)]))
    yield running
    assert running.stop() == 0


def write_config(folder, model, tokens):
    ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
    own = {"packs": ["packs"], "menu": "direct", "run": {"timeout_s": 120}, "secrets": {"OPENAI_API_KEY": "sk-0123"}}
    file = folder / "onetool.yaml"
    file.write_text(json.dumps({**own, "ask": ask, "http": {"tokens": tokens}}))
    return file


@pytest.fixture
def keeper(server):
    """Somebody else, who reads events meanwhile."""
    reading = LastingRequest(server, token_of(KEEPER), "GET", "/events")
    until(lambda: reading.exchange.events)
    yield
    assert not reading.is_over, "it was not meant"
    reading.exchange.hang_up()


# What lasts: each gives whether it is over, once it has begun, or None if its token counts no more


def events(server, token, _path, _model):
    one = LastingRequest(server, token, "GET", "/events")
    return one if begun(one, lambda: one.exchange.events) else None


def run(server, token, path, _model):
    one = LastingRequest(server, token, "POST", "/run", {"code": f"working.hang(path={str(path)!r})"})
    return one if begun(one, has_begun(path)) else None


def ask(server, token, path, model):
    model.will(Says(calls=[Wants("working__hang", {"path": str(path)})]), "Done.")
    one = LastingRequest(server, token, "POST", "/ask", {"prompt": "Hang.", "approve": "always"})
    return one if begun(one, has_begun(path)) else None


def call(server, token, path, _model):
    one = LastingRequest(server, token, "POST", "/call/working.hang", {"path": str(path)})
    return one if begun(one, has_begun(path)) else None


def begun(one, true):
    until(lambda: one.is_over or true())
    return not one.is_over


def has_begun(path):
    return path.with_name(f"{path.name}.began").exists


class Pursued:
    """A request of MCP."""

    def __init__(self, pending):
        self._pending = pending

    @property
    def is_over(self):
        return self._pending.is_answered


def mcp_stream(server, token, _path, _model):
    peer = begin_peer(server, token, "old")
    return peer and Pursued(peer.listen())


def mcp_listen(server, token, _path, _model):
    peer = begin_peer(server, token, "new")
    pending = peer.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    until(lambda: peer.heard or pending.is_answered)
    return None if pending.is_answered else Pursued(pending)


def mcp_call(server, token, path, _model, era="new"):
    peer = begin_peer(server, token, era)
    if peer is None:
        return None
    pending = peer.begin("tools/call", {"name": "working__hang", "arguments": {"path": str(path)}})
    until(lambda: has_begun(path)() or pending.is_answered)
    return None if pending.is_answered else Pursued(pending)


def mcp_call_of_session(server, token, path, model):
    return mcp_call(server, token, path, model, "old")


def begin_peer(server, token, era):
    try:
        return HttpPeer(server, era, token=token)
    except (KeyError, AssertionError):  # 401: there is no session
        return None


CALLS = (run, ask, call, mcp_call, mcp_call_of_session)
LASTING = (events, mcp_stream, mcp_listen, *CALLS)


# How a token ends: each begins everything with one token, ends the token, and gives what was begun


def stored(server, *args):
    file = server.folder / "onetool.yaml"
    done = cli("--config", str(file), "tokens", *args, cwd=server.folder, env=environment(server.folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def revoked(server, model, begin):
    all_begun = begin(stored(server, "add", "revoked"))
    stored(server, "revoke", "revoked")
    return all_begun


def removed(server, model, begin):
    reload(server, model, [token_entry(KEEPER), token_entry("removed")])
    all_begun = begin(token_of("removed"))
    reload(server, model, [token_entry(KEEPER)])
    return all_begun


def expired(server, model, begin):
    """A machine that is slow may find it expired before everything has begun: then it gets more time."""
    for seconds in (2, 4, 8, 16, 32):
        expires = datetime.fromtimestamp(time.time() + seconds, UTC)
        all_begun = begin(stored(server, "add", f"expires-{seconds}", "--expires", expires.isoformat()))
        if all(all_begun.values()):
            until(lambda at=expires: datetime.now(UTC) >= at)
            return all_begun
    raise AssertionError("it never began")


def reload(server, model, tokens):
    before = server.log().lower().count("reloaded")
    write_config(server.folder, model, tokens)
    server.reload()
    until(lambda: server.log().lower().count("reloaded") > before)


@pytest.mark.parametrize("end", [revoked, removed, expired])
def test_everything_ends_with_its_token(server, model, keeper, tmp_path, end):
    numbers, used = count(), {}

    def begin(token):
        used.update({lasting: tmp_path / f"{lasting.__name__}-{next(numbers)}" for lasting in LASTING})
        return {lasting: lasting(server, token, used[lasting], model) for lasting in LASTING}

    def is_over(lasting, one):
        assert one, "its token did not count"
        until(lambda: one.is_over, SECONDS)
        if lasting in CALLS:
            until(used[lasting].with_name(f"{used[lasting].name}.cancelled").exists, SECONDS)

    check_each(list(end(server, model, begin).items()), is_over)
