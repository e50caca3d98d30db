"""A rolling restart: no call fails, and sessions live on."""

import signal
import time
from itertools import count
from threading import Event, Thread

from cluster.conftest import shared_file
from cluster.members import KEY, Balancer, Member
from helpers import until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import Server


class ReadyBalancer(Balancer):
    """Asks who is ready before it sends anything, as balancers do."""

    def __init__(self, *servers):
        self.servers = servers
        self._turns = count()

    @property
    def port(self):
        return self._ready().port

    def send(self, *args, **options):
        return self._ready().send(*args, **options)

    def _ready(self):
        """Return the next server that is ready; each is asked once, whatever other threads do."""
        turn, servers = next(self._turns), self.servers
        for offset in range(len(servers)):
            one = servers[(turn + offset) % len(servers)]
            try:
                if one.send(None, path="/readyz", method="GET").status == 200:
                    return one
            except OSError:
                pass
        raise AssertionError("nobody is ready")


def test_no_call_fails(tmp_path):
    file = shared_file(tmp_path)
    first, second = (Member(tmp_path / name, file, "--drain-s", "0.5") for name in "ab")
    balancer, is_over, said, wrong = ReadyBalancer(first, second), Event(), [], []
    peers = [HttpPeer(balancer, "old"), HttpPeer(balancer, "new")]

    def work(peer):
        while not is_over.is_set():
            try:
                said.append(peer.text("plus", {"a": len(said), "b": 0}))
            except Exception as error:
                wrong.append(error)

    threads = [Thread(target=work, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    news = peers[0].listen()
    slow = HttpPeer(first, "new").begin(
        "tools/call", {"name": "working__wait_for", "arguments": {"path": str(tmp_path / "late")}}
    )
    until((tmp_path / "late.began").exists)
    first.process.send_signal(signal.SIGTERM)
    draining = until(lambda: _not_ready(first))
    assert (draining.message["status"], draining.headers["connection"]) == ("draining", "close")
    third = Member(tmp_path / "c", file, "--drain-s", "0")
    balancer.servers = (second, third)
    (tmp_path / "late").touch()
    assert slow.answer()["result"]["content"][0]["text"] == "late came"
    assert first.process.wait(20) == 0
    before = len(said)
    until(lambda: len(said) > before + 20)
    is_over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    news.exchange.hang_up()
    for server in (second, third):
        assert server.stop() == 0
    for server in (first, second, third):
        assert "Traceback" not in server.log()


PATIENT = """
import asyncio
from pathlib import Path

from onetool.sdk import ask_person


async def work(path: str) -> str:
    \"\"\"Ask, then wait until a file is there.\"\"\"
    await ask_person("Go on?", {"ok": {"type": "boolean"}}, key="ok")
    Path(f"{path}.began").touch()
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "worked"
"""


def test_a_call_that_was_answered_elsewhere_is_finished(tmp_path):
    (tmp_path / "patient.py").write_text(PATIENT)
    config = tmp_path / "onetool.yaml"
    config.write_text(f"packs: [patient.py]\ncluster: {{finish_s: 30}}\nhttp: {{token: {KEY}}}\n")
    home = {"ONETOOL_HOME": str(tmp_path / "home")}
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first, second = (Server(one, "--drain-s", "0", "--menu", "direct", config=config, **home) for one in folders)
    peer = HttpPeer(first, "new", token=KEY)
    call = {"name": "patient__work", "arguments": {"path": str(tmp_path / "it")}}
    state = peer.result("tools/call", call)["requestState"]
    peer.server = second
    ok = {"ok": {"action": "accept", "content": {"ok": True}}}
    answered = peer.begin("tools/call", {**call, "requestState": state, "inputResponses": ok})
    until((tmp_path / "it.began").exists)
    first.process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert first.process.poll() is None
    (tmp_path / "it").touch()
    assert answered.answer()["result"]["content"][0]["text"] == "worked"
    assert first.process.wait(20) == 0
    assert second.stop() == 0


def _not_ready(server):
    found = server.send(None, path="/readyz", method="GET")
    return found if found.status == 503 else None
