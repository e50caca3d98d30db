"""Replicas with other packs, settings or tools are named, with what differs."""

import json
import signal
from contextlib import ExitStack

import pytest
from cluster.members import KEY, Replica
from helpers import cli, until

from onetool.cluster.drift import difference, opened, sealed

PACK = """pack = "extra"


def hello() -> str:
    \"\"\"Say {word}.\"\"\"
    return "{word}"
"""


class Two:
    """Two replicas whose packs and settings lie in folders of their own."""

    def __init__(self, folder, database, database_url, ends):
        self.folder, self.database = folder, database
        self.members = {}
        for name in "ab":
            self.write(name)
            more = f"include: ['{folder}/{name}-more/more.yaml']\nhttp: {{token: {KEY}}}\n"
            self.members[name] = Replica(folder / name, database_url, "--drain-s", "0", more=more)
            ends.callback(self.members[name].kill)

    def write(self, name, word="hello", **settings):
        packs = self.folder / f"{name}-more" / "packs"
        packs.mkdir(parents=True, exist_ok=True)
        (packs / "extra.py").write_text(PACK.format(word=word))
        more = {"packs": ["packs"], "settings": {"extra": settings}}
        (packs.parent / "more.yaml").write_text(json.dumps(more))

    def rows(self):
        return dict(self.database.read(lambda work: work.execute("SELECT place, catalogue FROM replicas")))

    def told(self, name):
        """What GET /check says of replicas that differ."""
        headers = [("Authorization", f"Bearer {KEY}")]
        found = self.members[name].send(None, headers, path="/check", method="GET").message
        return [one["message"] for one in found["findings"] if " differs from " in one["message"]]


@pytest.fixture
def two(database, database_url, tmp_path):
    with ExitStack() as ends:
        yield Two(tmp_path, database, database_url, ends)


def test_the_one_that_differs_is_named_with_what_differs(two):
    first, second = two.members["a"], two.members["b"]
    until(lambda: len(two.rows()) == 2 and all(two.rows().values()))
    assert two.told("a") == two.told("b") == []  # folders, addresses and ports are no difference

    before = two.rows()[second.place]
    two.write("b", "goodbye", loud="very-loud-indeed")
    second.process.send_signal(signal.SIGHUP)
    until(lambda: two.rows()[second.place] != before)
    assert "very-loud" not in two.rows()[second.place]
    (said,) = until(lambda: [one for one in two.told("a") if one.count("other") == 3])
    parts = ("other pack extra", "other setting settings", "other file packs/extra.py")
    assert all(part in said for part in (first.place, second.place, *parts))
    assert two.told("b") == [said]
    command = ("--config", str(first.folder / "onetool.yaml"), "check", "--json")
    found = [one["message"] for one in json.loads(cli(*command, cwd=first.folder).stdout)]
    assert said.removeprefix("cluster: ") in found
    until(lambda: f"at {second.place} differs from this one: other file packs/extra.py" in first.log())

    two.write("b")
    second.process.send_signal(signal.SIGHUP)
    until(lambda: two.told("a") == [])


KEY_A, KEY_B = b"a" * 32, b"b" * 32


def test_digests_of_another_key_or_replica_are_not_compared():
    parts = {"packs": {"pack a": "1"}}
    assert opened(sealed(parts, KEY_A, "one"), KEY_A, "one") == parts
    for text, key, replica in (
        (sealed(parts, KEY_A, "one"), KEY_B, "one"),
        (sealed(parts, KEY_A, "one"), KEY_A, "two"),
    ):
        assert opened(text, key, replica) is None
    assert opened("", KEY_A, "one") is None
    assert difference(parts, None) == ""


def test_tools_of_a_server_count_where_both_have_listed_them():
    here = {"servers": {"tools of server a": "1", "tools of server b": "1"}, "packs": {"pack x": "1"}}
    there = {"servers": {"tools of server a": "2"}, "packs": {"pack y": "1"}}
    assert difference(here, there) == "other tools of server a, pack x only here, pack y only there"
