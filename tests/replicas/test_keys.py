"""cluster.key is changed while replicas serve: old and new keys count for a while."""

import json
import subprocess
import sys

import httpx
from helpers import until

from replicas.harness import KEY
from replicas.test_cut_off import rpc
from replicas.test_restart import ANSWER, question

NEW = KEY[::-1]


def command(one, *args, check=True):
    told = [sys.executable, "-m", "onetool", "--config", str(one.config), *args]
    return subprocess.run(told, capture_output=True, text=True, check=check)


def test_the_key_is_changed_without_an_outage(replicas):
    (old,) = replicas(1, finish=f"accepted_keys: [{NEW}]")
    (new,) = replicas(1, key=NEW, finish=f"accepted_keys: [{KEY}]")
    added = command(old, "tokens", "add", "ada").stdout
    token = next(word for word in added.split() if word.startswith("ot_"))
    ada = {"Authorization": f"Bearer {token}"}
    for asks, answers in ((old, new), (new, old)):
        asked = question(asks.url)
        until(lambda to=answers: len(httpx.get(f"{to.url}/check").json()["replicas"]) == 2, 20)
        found = rpc(answers.url, "tools/call", {**asked, "inputResponses": ANSWER}).json()
        assert found["result"]["content"][0]["text"] == f"green in {asks.pid}"
        until(lambda to=answers: httpx.get(f"{to.url}/tools/tools", headers=ada).status_code == 200, 20)
    old.stop()
    assert json.loads(command(new, "db", "rekey", "--json").stdout)["sealed"] > 0
    (last,) = replicas(1, key=NEW)
    until(lambda: httpx.get(f"{last.url}/tools/tools", headers=ada).status_code == 200, 20)
    for name in ("init", "rekey"):
        refused = command(old_only(old), "db", name, check=False)
        assert (refused.returncode, "another cluster.key" in refused.stderr) == (1, True), refused


def old_only(one):
    """Its config without the new key."""
    one.config.write_text(one.config.read_text().replace(f", accepted_keys: [{NEW}]", ""))
    return one
