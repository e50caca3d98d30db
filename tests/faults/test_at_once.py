"""Many processes at once: one winner for each key, nothing lost, nobody sees half of anything."""

import json
from collections import Counter

import pytest
from faults.crowd import an_id, bundle, crowd, some

from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import folder_store

pytestmark = pytest.mark.long


def prepared(folder):
    store, id = folder_store(folder), an_id()
    store.put_bundle(id, bundle())
    store.close()
    return id


def test_eight_processes_put_the_same_keys(tmp_path):
    folder, keys = tmp_path / "bundles", some(12, 500)
    id = prepared(folder)
    won = crowd("put_same", 8, folder, id, keys)
    winners = {key: number for number, mine in enumerate(won) for key in mine}
    assert Counter(key for mine in won for key in mine) == dict.fromkeys(range(keys), 1)
    for path in folder.glob("*/tools/*.json"):
        data = json.loads(path.read_bytes())
        assert data["description"] == f"of {winners[int(data['slug'][1:])]}"
    store = folder_store(folder)
    assert {one.slug: one.description for one in store.tools(ListQuery(limit=1000))} == {
        f"t{key}": f"of {number}" for key, number in winners.items()
    }
    assert store.mistakes() == []
    store.close()


def test_eight_processes_put_different_keys(tmp_path):
    folder, keys = tmp_path / "bundles", some(12, 500)
    id = prepared(folder)
    crowd("put_other", 8, folder, id, keys)
    store = folder_store(folder)
    assert len(store.tools(ListQuery(limit=10_000))) == 8 * keys == len(list(folder.glob("*/tools/*.json")))
    assert not store.sync() or store.mistakes() == []
    store.close()


def test_readers_and_writers(tmp_path):
    folder = tmp_path / "bundles"
    id = prepared(folder)
    counts = crowd("read_or_write", some(10, 68), folder, id, some(2, 4), some(0.7, 30))
    assert all(counts)


def test_the_first_write_of_all_by_many_at_once(tmp_path):
    """The folder itself is made by the first; nobody gets another one."""
    folder = tmp_path / "a" / "b" / "bundles"
    id = an_id()
    assert crowd("make_bundle", 4, folder, id).count(True) == 1
