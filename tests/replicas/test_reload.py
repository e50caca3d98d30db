"""All replicas read their configs again when one command says so."""

import json

from helpers import until

from replicas.test_keys import command


def test_one_command_reloads_all_replicas(replicas):
    two = replicas(2)
    for one in two:
        one.config.write_text(one.config.read_text() + "docs_url: false\n")
    told = command(two[0], "db", "reload").stdout
    assert len(json.loads(told)["replicas"]) == 2
    for one in two:
        until(lambda one=one: "Reloaded: " in one.said(), 20)
