"""Replicas whose configs say different things of a server do not share it, and tell so. Folders do not count."""

import json
import signal
from contextlib import ExitStack

import pytest
from cluster.members import KEY, Replica
from helpers import cli, until
from interfaces.mcp.peers import HttpPeer
from sources.mcp_servers.harness import Harness

TOLD = "ok is configured differently on the replica"


class Two:
    """Two replicas, each with a config in a folder of its own."""

    def __init__(self, folder, database, database_url, *args):
        """`args` are those of the server in the second one's config."""
        self.harness, self.database = Harness(folder), database
        self.first = Replica(folder / "a", database_url, "--drain-s", "0", more=self.block())
        self.second = Replica(folder / "b", database_url, "--drain-s", "0", more=self.block(*args))

    def block(self, *args):
        return f"servers: {json.dumps({'ok': self.harness.nasty('ok', *args)})}\nhttp: {{token: {KEY}}}\n"

    def leases(self):
        rows = self.database.read(lambda work: work.execute("SELECT name, replica FROM leases"))
        return len(rows), len({replica for _, replica in rows})

    def stop(self):
        for one in (self.first, self.second):
            one.kill()


@pytest.fixture
def two(database, database_url, tmp_path):
    with ExitStack() as ends:

        def make(*args):
            made = Two(tmp_path, database, database_url, *args)
            ends.callback(made.stop)
            return made

        yield make


def pid(member):
    peer = HttpPeer(member, "old", token=KEY)
    try:
        until(lambda: "ok__pid" in [one["name"] for one in peer.result("tools/list")["tools"]])
        return int(peer.text("ok__pid"))
    finally:
        peer.close()


@pytest.mark.long
def test_equal_configs_in_different_folders_share_it_until_one_is_changed(two):
    pair = two()
    before = pid(pair.first)
    assert pid(pair.second) == before
    assert pair.harness.started() == [before]
    assert pair.leases() == (1, 1)
    assert TOLD not in pair.first.log() + pair.second.log()
    config = pair.first.folder / "onetool.yaml"
    config.write_text(config.read_text().replace(pair.block(), pair.block(1)))
    pair.first.process.send_signal(signal.SIGHUP)
    until(lambda: pair.leases() == (2, 2))  # the former lease was given up, and the other one has it
    assert len({pid(pair.first), pid(pair.second), before}) == 3


def test_different_ones_do_not_share_it_and_tell(two):
    pair = two(1)
    assert pid(pair.first) != pid(pair.second)
    assert len(pair.harness.started()) == 2
    assert pair.leases() == (2, 2)
    until(lambda: TOLD in pair.first.log() and TOLD in pair.second.log())
    (told,) = [one for one in checked(pair.first) if TOLD in one["message"]]
    assert (told["level"], pair.second.address in told["message"]) == ("warning", True)
    command = ("--config", str(pair.second.folder / "onetool.yaml"), "check", "--json")
    said = json.loads(cli(*command, cwd=pair.second.folder).stdout)
    (found,) = [one for one in said if TOLD in one["message"]]
    assert (found["key"], found["severity"]) == ("servers.ok", "warning")
    assert pair.first.address in found["message"]


def checked(member):
    return member.send(None, [("Authorization", f"Bearer {KEY}")], path="/check", method="GET").message["findings"]
