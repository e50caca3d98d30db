"""Replicas with other settings, packs or versions are named, with what differs, until it is mended."""

import json

import httpx
from helpers import until

from replicas.test_keys import command


def told(one):
    """What GET /check says of replicas that differ."""
    found = httpx.get(f"{one.url}/check", timeout=30).json()["findings"]
    return [finding["message"] for finding in found if " differs from " in finding["message"]]


def test_a_replica_that_differs_is_named_until_all_have_read_the_same_config(replicas):
    two = replicas(2)
    (other,) = replicas(1, "aliases: {clock: time.now}")
    for one in (*two, other):
        (said,) = until(lambda one=one: told(one))
        assert said.count(f":{other.port} differs from ") == 1
        assert said.endswith("other setting aliases"), said
    until(lambda: all(f":{other.port} differs from this one: other setting aliases" in one.said() for one in two), 30)
    checked = command(two[0], "check", "--json", check=False).stdout
    assert [one for one in json.loads(checked) if "other setting aliases" in one["message"]]

    for one in two:
        one.config.write_text(one.config.read_text() + "aliases: {clock: time.now}\n")
    httpx.post(f"{other.url}/call/ot.reload", json={}, timeout=30).raise_for_status()
    until(lambda: [told(one) for one in (*two, other)] == [[], [], []], 30)


def test_a_replica_of_another_version_is_named(replicas):
    (one,), (newer,) = replicas(1), replicas(1, version="99.1")
    named = f":{newer.port} has version 99.1 of OneTool, and this one has "
    until(lambda: named in one.said(), 20)
    for to in (one, newer):
        found = httpx.get(f"{to.url}/check", timeout=30).json()
        assert {each["version"] for each in found["replicas"]} > {"99.1"}
        assert [each for each in found["findings"] if "have different versions of OneTool" in each["message"]]
