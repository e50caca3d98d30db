"""Snippets that name a tool outside of a caller's allow-list: no interface tells that caller of them."""

import json

import pytest
from interfaces.http.matrix import token_entry, token_of
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import Server

TELLTALE = "Telltale"
BODIES = {
    "direct": "vault.unlock()",
    "nested": "print([vault.unlock() for _ in range(2)])",
    "imported": "import vault\nvault.unlock()",
    "renamed": "import vault as v\nv.unlock()",
    "member": "from vault import unlock\nunlock()",
    "assigned": "v = vault\nv.unlock()",
    "by-name": "ot.call('vault.unlock', {})",
    "aliased": "key()",
    "passed": "list(map(key, []))",
    "line": "+vault.unlock",
    "branch": "{% if word == 'x' %}vault.unlock(){% else %}time.now(){% endif %}",
    "broken": "{% for x in word %}\nvault.unlock()\n{% endfor %}) (",
    "default": "ot.call({{ tool }}, {})",
    "unconnected": "bank.pay()",
    "unconnected-renamed": "import bank as b\nb.pay()",
    "unconnected-by-name": "ot.call('bank.pay', {})",
}
HARMLESS = {
    "host": "print('example.com is up', 'see README.md')",
    "default": "print('{{ file }}', '{{ address }}')",
    "text": "'a.b'.upper()",
    "class": "class A:\n    x = 1\nA.x",
    "function": "def g():\n    pass\ng.calls = 1",
    "import": "from __future__ import annotations\nimport json as j\nj.dumps(1)",
    "member": "from datetime import datetime\ndatetime.now()",
    "except": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print(e.args)",
    "match": "match {'a': 1}:\n    case {'a': 1, **rest}:\n        rest.keys()",
    "argument": "ot.call('time.now', {'zone': 'example.com'})",
    "branch": "{% if file == 'x' %}time.now(){% endif %}\nprint('{{ file }}'.upper())",
}
PLACES = (
    "names",
    "list",
    "min",
    "full",
    "config",
    "help",
    "search",
    "prompts",
    "prompt",
    "complete",
    "run",
    "check",
    "menu",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snippets")
    (folder / "packs").mkdir()
    (folder / "packs" / "vault.py").write_text('def unlock() -> str:\n    """Unlock it."""\n    return "gold"\n')
    params = {"word": {"type": "string", "default": "y"}, "tool": {"type": "string", "default": "time.now"}}
    clock = {"description": "Tell the time", "params": {}, "body": "time.now()"}
    snippets = {"clock": clock} | {
        f"{name}-one": {"description": f"{TELLTALE} {name}", "params": {**params}, "body": body}
        for name, body in BODIES.items()
    }
    files = {"file": {"type": "string", "default": "notes.txt"}, "address": {"default": "https://example.com"}}
    snippets |= {
        f"{name}-harmless": {"description": "Harmless", "params": files, "body": body}
        for name, body in HARMLESS.items()
    }
    snippets["default-one"]["params"]["tool"] = {"type": "string", "default": "vault.unlock"}
    tokens = [token_entry("few", tools=["time.*", "ot.*"], role="call"), token_entry("all", role="admin")]
    config = {
        "packs": [str(folder / "packs")],
        "aliases": {"key": "vault.unlock"},
        "snippets": snippets,
        "servers": {"bank": {"command": "no-such-command-anywhere"}},
        "http": {"tokens": tokens},
    }
    file = folder / "onetool.yaml"
    file.write_text(json.dumps(config))
    started = Server(folder, config=file)
    yield started
    started.stop()


def told(server, place, name, who="few"):
    """All that one place says to somebody who asks for this snippet, or for one that is called nearly so."""

    def sent(method, path, body=None):
        headers = [("Authorization", f"Bearer {token_of(who)}"), ("Content-Type", "application/json")]
        data = None if body is None else json.dumps(body).encode()
        return server.send(data, headers, path=path, method=method).body.decode()

    def asked(method, params):
        peer = HttpPeer(server, "old", token=token_of(who))
        try:
            return json.dumps(peer.ask(method, params))
        finally:
            peer.close()

    match place:
        case "names":
            return sent("GET", "/run/names")
        case "list" | "min" | "full":
            return sent("POST", "/call/ot.snippets", {"info": place})
        case "config":
            return sent("POST", "/call/ot.config", {})
        case "help":
            return sent("POST", "/call/ot.help", {"query": f"${name}"})
        case "search":
            return sent("POST", "/call/ot.help", {"query": name[:-1], "info": "list"})
        case "prompts":
            return asked("prompts/list", {})
        case "prompt":
            return asked("prompts/get", {"name": name, "arguments": {}}) + asked("prompts/get", {"name": name[:-1]})
        case "complete":
            ref = {"type": "ref/prompt", "name": name}
            return asked("completion/complete", {"ref": ref, "argument": {"name": "tool", "value": ""}})
        case "run" | "check":
            path = "/run" if place == "run" else "/run/check"
            return "".join(sent("POST", path, {"code": f"${one}"}) for one in (name, name[:-1], f"{name} wrong=1"))
        case "menu":
            return asked("tools/list", {})


@pytest.mark.attack("wire")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [f"{name}-one" for name in BODIES])
def test_nobody_hears_of_a_snippet_with_tools_of_others(server, place, name):
    text = told(server, place, name)
    assert TELLTALE not in text
    assert "vault" not in text
    assert "bank" not in text
    assert name not in text.replace(f"${name}", "").replace(f"prompt: {name}", "").replace(f"exactly '{name}", "")


def test_harmless_snippets_are_shown(server):
    """A dot in a text, and a name that the code defines, are no pack of a server that has not connected yet."""
    shown = told(server, "list", "clock")
    assert [name for name in HARMLESS if f"{name}-harmless" not in shown] == []


@pytest.mark.attack("wire")
@pytest.mark.parametrize("place", PLACES)
def test_others_are_told_as_ever(server, place):
    for who in ("few", "all"):
        text = told(server, place, "clock", who)
        assert "clock" in text or (place == "complete" and "values" in text) or ("time.now" in text)
    assert place in ("help", "search", "prompt", "complete", "run", "check") or "direct-one" in told(
        server, place, "clock", "all"
    )
