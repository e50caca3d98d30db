"""A server that is not one of several loads nothing of `onetool.cluster`."""

import re

import pytest
from cluster.conftest import shared_file
from cluster.members import Member
from interfaces.mcp.peers import HttpPeer, StdioPeer
from interfaces.mcp.servers import Server, ended_well

TOLD = {"PYTHONPROFILEIMPORTTIME": "1"}  # the interpreter writes a line for every module that it loads


def of_cluster(log):
    loaded = re.findall(r"\| +(onetool[\w.]*)$", log, re.MULTILINE)
    assert "onetool.interfaces.mcp.service" in loaded
    return [name for name in loaded if name.startswith("onetool.cluster")]


def use(server):
    """Ask for what each interface has."""
    assert HttpPeer(server, "old").result("tools/list")["tools"]
    assert HttpPeer(server, "new").result("tools/list")["tools"]
    for path in ("/check", "/tools/bundles", "/readyz", "/status", "/openapi.json", "/ask/sessions"):
        assert server.send(None, path=path, method="GET").status == 200, path


@pytest.mark.parametrize("era", ["old", "new"])
def test_over_stdio(tmp_path, era):
    peer = StdioPeer(tmp_path, era, env=TOLD)
    assert peer.result("tools/list")["tools"]
    ended_well(peer.close)
    assert not of_cluster(peer.log_file.read_text())


def test_over_http(tmp_path):
    server = Server(tmp_path, **TOLD)
    use(server)
    ended_well(server.stop)
    assert not of_cluster(server.log())


def test_one_of_several_loads_it(tmp_path):
    member = Member(tmp_path / "one", shared_file(tmp_path), **TOLD)
    use(member)
    ended_well(member.stop)
    assert "onetool.cluster.members" in of_cluster(member.log())
