"""All replicas read their configs again when one of them is asked to."""

import httpx
from helpers import until


def test_one_call_reloads_all_replicas(replicas):
    two = replicas(2)
    for one in two:
        one.config.write_text(one.config.read_text() + "docs_url: false\n")
    httpx.post(f"{two[0].url}/call/ot.reload", json={}, timeout=30).raise_for_status()
    until(lambda: "Reloaded: " in two[1].said(), 20)
