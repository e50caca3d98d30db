"""kill -9 in the middle of writing: what was acknowledged is there, and everything can be read."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest
from faults.crowd import TOOLS_OF_WHOLE, Victims, an_id, bundle, some
from helpers import until

from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import folder_store


@pytest.fixture
def victims():
    made = Victims()
    yield made
    made.close()


def test_no_acknowledged_write_is_lost(tmp_path, victims):
    folder, log = tmp_path / "bundles", tmp_path / "log"
    store, id = folder_store(folder), an_id()
    store.put_bundle(id, bundle())
    store.close()
    changes = 0
    for _ in range(some(8, 200)):
        pid = victims.new(folder, id, log)
        until(lambda: log.exists() and log.stat().st_size)
        time.sleep(random.uniform(0, some(0.06, 0.3)))
        os.kill(pid, signal.SIGKILL)
        victims.gone()
        changes += check(folder, id, log)
    assert changes > some(8, 1000)


def check(folder, id, log):
    """Holds what is there against what was told. The log begins anew with what is known to be there."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    store = folder_store(folder)
    found = {one.slug: one for one in store.tools(ListQuery(include_disabled=True))}
    open_change = lines[-1][1:] if lines[-1][0] == "begin" else None
    expected, text = replayed([line for line in lines if line[0] == "done"])
    allowed = [(expected, text)]
    if open_change is not None:
        allowed.append(replayed([["done", "start", expected, text], ["done", *open_change]]))
    state = {slug: [one.description, one.is_enabled] for slug, one in found.items()}
    assert (state, store.bundle(id).display_name) in allowed, (lines[-5:], state)
    assert store.mistakes() == []
    for path in folder.rglob("*.json"):
        json.loads(path.read_bytes())
    assert {path.name for path in folder.rglob(".onetool-*")} <= {".onetool-state"}
    log.write_text(json.dumps(["done", "start", state, store.bundle(id).display_name]) + "\n")
    store.close()
    return len(lines)


def test_no_half_of_a_bundle_is_left(tmp_path, victims):
    folder, log, kept = tmp_path / "bundles", tmp_path / "log", set()
    for number in range(some(8, 100)):
        pid = victims.new(folder, "", log)
        first = "begin\n" if number else "-"  # at first, until a bundle is there
        until(lambda first=first: log.exists() and first in log.read_text())
        time.sleep(random.uniform(0, some(0.1, 0.3)))
        os.kill(pid, signal.SIGKILL)
        victims.gone()
        kept |= {line for line in log.read_text().splitlines() if line != "begin"}
        log.unlink()
        store = folder_store(folder)
        store.sync()
        found = Counter(one.bundle_id for one in store.tools(ListQuery(limit=100_000)))
        assert kept <= found.keys() == {one.id for one in store.bundles(ListQuery(limit=10_000))}
        assert set(found.values()) <= {TOOLS_OF_WHOLE}
        assert store.mistakes() == []
        assert {path.name for path in folder.rglob(".onetool-*")} <= {".onetool-state"}
        store.close()
    assert kept


def replayed(lines):
    tools, text = {}, ""
    for _, what, *values in lines:
        if what == "start":
            tools, text = {slug: list(one) for slug, one in values[0].items()}, values[1]
        elif what == "put":
            tools.setdefault(values[0], [values[1], True])
        elif what == "patch" and values[0] in tools:
            tools[values[0]][1] = values[1]
        elif what == "delete":
            tools.pop(values[0], None)
        elif what == "bundle":
            text = values[0]
    return tools, text
