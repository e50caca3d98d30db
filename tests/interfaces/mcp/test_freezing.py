"""Values that somebody chose do not stop the server: another request is answered while they are read.

Each of these took minutes, or for ever, with the interpreter's lock held: where Python hashes numbers and tuples, where
a validator compares items pairwise, where a name is compared with all others.
"""

import time

import pytest

pytestmark = [pytest.mark.attack("other callers"), pytest.mark.long]

CONFIG = """
stats: {enabled: false}
run: {timeout_s: 8}
tools:
  - name: echo
    description: Says nothing.
    type: function
    handler: echo
    parameters: {type: object, properties: {value: {}}}
    implementation: {type: mock, mock_response: ok}
  - name: once
    description: Takes each thing once.
    type: function
    handler: once
    parameters: {type: object, properties: {value: {type: array, uniqueItems: true}}}
    implementation: {type: mock, mock_response: ok}
"""
ATTACKS = {
    "a set of equal hashes": "{i * (2**61 - 1) for i in range(60_000)}",
    "an argument of equal hashes": "echo(value={i * (2**61 - 1): 0 for i in range(60_000)})",
    "a key of 2^40 leaves": "x = ()\nfor _ in range(40): x = (x, x)\n{x: 1}",
    "a list of 2^40 leaves": "x = []\nfor _ in range(40): x = [x, x]\necho(value=x)",
    "one large key in many dicts": "k = tuple(range(100_000))\n[{(k, i): i} for i in range(10_000)]",
    "a million levels": "x = []\nfor _ in range(1_000_000): x = [x]\nx",
    "empty lists": "echo(value=[[] for _ in range(500_000)])",
    "numbers of 4000 digits": "echo(value=[10**4000 + i for i in range(3000)])",
    "numbers of 4000 digits as keys": "{10**4000 + i: i for i in range(3000)}",
    "unique numbers": "once(value=[10**100 + i for i in range(60_000)])",
    "a large key of numbers": "echo(value={tuple([i * 1.1e-300 for i in range(690_000)]): 1})",
    "a large key of texts": "echo(value={('\\x01' * 15_000_000,): 1})",
    "unique long numbers": "once(value=[10**4200 + i for i in range(3000)])",
    "unique fractions": "once(value=[i * 1.1e-305 for i in range(300_000)])",
    "a result of empty things": "[{}] * 400_000",
    "many imports": "if 0:\n" + " from statistics import *\n" * 20_000,
    "unique lists": "once(value=[[i] for i in range(100_000)])",
    "a long argument name": "time.now(**{'k' * 15_000_000: 1})",
    "many argument names": "time.now(**{f'k{i}': 'v' for i in range(240_000)})",
    "a long name": "ot.call('a' * 10_000_000, {})",
    "a long question": "ot.help(query='many words ' * 500_000)",
    "a long search": "ot.search(query='many words ' * 500_000)",
    "a long error": "raise NameError(\"name '\" + 'a' * 9_000_000 + \"' is not defined\")",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from interfaces.mcp.peers import StdioPeer

    folder = tmp_path_factory.mktemp("frozen")
    (folder / "onetool.yaml").write_text(CONFIG)
    peer = StdioPeer(folder, "old", config=folder / "onetool.yaml")
    yield peer
    peer.close()


@pytest.mark.parametrize("code", ATTACKS.values(), ids=ATTACKS)
def test_another_request_is_answered_meanwhile(server, code):
    pending = server.begin("tools/call", {"name": "run", "arguments": {"code": code}})
    while not pending.is_answered:
        server.ask("ping")  # fails where it takes a minute
        time.sleep(0.005)
    assert "result" in pending.answer()
    answer = server.ask("tools/call", {"name": "run", "arguments": {"code": "1 + 1"}})
    assert answer["result"]["content"][0]["text"] == "2"
