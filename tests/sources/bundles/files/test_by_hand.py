"""Files that people and git write: taken in at the next look, and reported where they can't be used."""

import json
import os
import shutil
import sqlite3
import time

import pytest
from msgspec.structs import replace
from sources.bundles.files.things import an_id, built_in, bundle, file_of, files, reasons, tool, with_tool

from onetool.core.schema import CompiledSchema
from onetool.sources.bundles import validation
from onetool.sources.bundles.errors import ConflictError, ForbiddenError, NotFoundError, UnavailableError
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store import folder as files_of
from onetool.sources.bundles.store.rows import Mirror

BY_HAND = {"type": "script", "slug": "sum", "version": "1", "scriptImpl": {"code": "1 + 1"}}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def settled(*paths):
    """As if they had been written a while ago."""
    for path in paths:
        os.utime(path, (time.time() - 60, time.time() - 60))


def test_an_edited_file_is_taken_in(store, folder):
    id, kept = with_tool(store)
    store.sync()
    assert not store.sync()
    path = file_of(folder)
    path.write_text(path.read_text().replace("Says what", "Knows what"))
    state = store.state()
    assert store.sync()
    assert store.tool(id, "forecast", "1").description.startswith("Knows what")
    assert store.tool(id, "forecast", "1").id == kept.id
    assert store.state() != state


def test_a_new_file_and_a_deleted_one(store, folder):
    id, _ = with_tool(store)
    path = file_of(folder)
    write(path.with_name("sum.json"), BY_HAND)
    path.unlink()
    assert store.sync()
    assert [one.slug for one in store.tools(ListQuery(include_disabled=True))] == ["sum"]
    store.patch_tool(id, "sum", "1", False)
    assert json.loads(path.with_name("sum.json").read_text())["isEnabled"] is False
    store.delete_tool(id, "sum", "1")
    assert not path.with_name("sum.json").exists()


def test_a_bundle_by_hand_without_anything_that_the_store_knows(store, folder):
    write(folder / "mine" / "bundle.json", {"slug": "mine"})
    path = write(folder / "mine" / "tools" / "sum.json", BY_HAND)
    store.sync()
    (made,), (found,) = store.bundles(), store.tools()
    assert (made.slug, found.slug, found.bundle_id) == ("mine", "sum", made.id)
    assert found.created_at == found.modified_at
    assert store.mistakes() == []
    settled(path)
    path.write_text(json.dumps(BY_HAND | {"description": "Adds."}))
    store.sync()
    (edited,) = store.tools()
    assert (edited.id, edited.description) == (found.id, "Adds.")
    store.put_tool(made.id, "other", "1", tool())
    kept, _ = store.put_bundle(made.id, bundle("mine", description="Now kept."))
    assert json.loads((folder / "mine" / "bundle.json").read_text())["id"] == kept.id == made.id
    assert len(store.tools()) == 2


def test_a_folder_that_is_renamed_stays_the_same_bundle(store, folder):
    id, kept = with_tool(store)
    next(folder.glob("weather-*")).rename(folder / "renamed")
    store.sync()
    assert store.tool(id, "forecast", "1") == kept
    assert store.mistakes() == []
    store.put_tool(id, "other", "1", tool())
    assert (folder / "renamed" / "tools" / "other@1.json").exists()


def test_a_change_of_a_file_that_was_moved_away_meanwhile(store, folder):
    id, _ = with_tool(store)
    with_tool(store)
    (folder / f"weather-{id[-12:]}" / "tools" / "forecast@1.json").unlink()
    with pytest.raises(NotFoundError):
        store.patch_tool(id, "forecast", "1", False)
    store.put_tool(id, "forecast", "1", tool())
    shutil.rmtree(folder / f"weather-{id[-12:]}")
    with pytest.raises(NotFoundError):
        store.put_tool(id, "again", "1", tool())


def test_what_is_disabled_by_hand_counts_before_any_look(store, folder):
    id, _ = with_tool(store)
    path = next(folder.glob("*/bundle.json"))
    path.write_text(path.read_text().replace('"isEnabled": true', '"isEnabled": false'))
    with pytest.raises(ForbiddenError, match="disabled"):
        store.put_tool(id, "other", "1", tool())


def test_an_edit_within_the_same_tick_is_seen(store, folder):
    id, _ = with_tool(store)
    path = file_of(folder)
    path.write_text(path.read_text().replace("Says", "Said"))
    stamp = path.stat()
    store.sync()
    path.write_text(path.read_text().replace("Said", "Told"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    store.sync()
    assert store.tool(id, "forecast", "1").description.startswith("Told")


def test_what_has_settled_is_not_read_again(store, folder, monkeypatch):
    with_tool(store)
    path = file_of(folder)
    path.write_text(path.read_text().replace("Says", "Said"))
    store.sync()
    state = store.state()
    assert not store.sync()
    assert store.state() == state
    monkeypatch.setattr(files_of, "RACY_S", 0.0)
    store.sync()
    read = []
    monkeypatch.setattr(files_of, "read_row", lambda path, *_: read.append(path))
    assert not store.sync()
    assert read == []


BROKEN = {
    "half": ('{"type": "script", "slug": "x"', "line 1, column 31"),
    "empty": ("", "is empty"),
    "nuls": ("\0" * 100, "NUL"),
    "newer": (json.dumps(BY_HAND | {"schemaVersion": "2"}), "written by a newer OneTool"),
    "unknown version": (json.dumps(BY_HAND | {"schemaVersion": "x"}), "unknown version 'x'"),
    "bom": ("\ufeff" + json.dumps(BY_HAND), "byte order mark"),
    "twice": ('{"type": "script", "type": "http"}', "'type' occurs twice"),
    "deep": ('{"a":' * 100_000, "nested deeper"),
    "deep but whole": (json.dumps(BY_HAND)[:-1] + ', "limits": ' + '{"a":' * 200 + "1" + "}" * 201, "nested deeper"),
    "a list": ("[]", "expected a JSON object"),
    "no slug": ('{"type": "script", "version": "1"}', "slug: it is missing"),
    "a number as its version": (json.dumps(BY_HAND | {"version": 1}), 'quotes around it: "1"'),
    "a slug that may not be": (json.dumps(BY_HAND | {"slug": "a_b"}), "a_b"),
    "no schema": (json.dumps(BY_HAND | {"argSchema": {"type": "nonsense"}}), "argSchema: "),
    "no id": (json.dumps(BY_HAND | {"id": "x"}), "UUIDv7"),
    "no time": (json.dumps(BY_HAND | {"createdAt": "yesterday"}), "createdAt: "),
    "an unknown key": (json.dumps(BY_HAND | {"descripton": ""}), "description"),
    "nan": ('{"limits": NaN}', "NaN is not a number"),
    "half a character in its title": (json.dumps(BY_HAND | {"displayName": "a\ud800"}), "lone surrogate"),
    "half a character in a tag": (json.dumps(BY_HAND | {"tags": ["\udc00"]}), "lone surrogate"),
    "of two types": (json.dumps(BY_HAND | {"httpImpl": {}}), "another type"),
}


def test_a_bundle_with_half_a_character_is_set_aside_and_others_are_taken_in(store, folder):
    id, kept = with_tool(store)
    write(folder / "other" / "bundle.json", '{"slug": "other", "displayName": "x\\ud83d"}')
    write(folder / "third" / "bundle.json", '{"slug": "third", "displayName": "x\\ud83d\\ude00"}')
    assert store.sync()
    assert "lone surrogate" in reasons(store)["bundle.json"]
    assert {one.slug for one in store.bundles(ListQuery(include_disabled=True)) if not one.is_built_in} >= {"third"}
    assert store.tool(id, kept.slug, kept.version)


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_set_aside(store, folder, kind):
    text, words = BROKEN[kind]
    id, kept = with_tool(store)
    path = write(file_of(folder).with_name("broken.json"), text)
    assert store.sync()
    assert words in reasons(store)["broken.json"]
    assert store.mistakes()[0].file == str(path)
    assert store.tools() == [kept]
    state = store.state()
    assert not store.sync()
    assert store.state() == state
    path.write_text(json.dumps(BY_HAND))
    store.sync()
    assert store.mistakes() == []
    assert store.tool(id, "sum", "1")


def test_bytes_that_are_no_text(store, folder):
    with_tool(store)
    file_of(folder).with_name("broken.json").write_bytes(b'{"slug": "\xff"}')
    store.sync()
    assert "not UTF-8" in reasons(store)["broken.json"]


def test_what_is_no_file(store, folder, tmp_path):
    _, kept = with_tool(store)
    tools = file_of(folder).parent
    (tmp_path / "secret.json").write_text(json.dumps(BY_HAND))
    (tools / "link.json").symlink_to(tmp_path / "secret.json")
    (tools / "folder.json").mkdir()
    os.mkfifo(tools / "pipe.json")
    with open(tools / "large.json", "wb") as file:
        file.truncate(1024**3)
    (folder / "linked").symlink_to(tools.parent)
    store.sync()
    found = reasons(store)
    assert "link" in found["link.json"]
    assert "not a regular file" in found["folder.json"]
    assert "not a regular file" in found["pipe.json"]
    assert "1,073,741,824 bytes" in found["large.json"]
    assert "link" in found["linked"]
    assert store.tools() == [kept]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(store, folder):
    with_tool(store)
    path = write(file_of(folder).with_name("secret.json"), BY_HAND)
    path.chmod(0)
    store.sync()
    assert "Permission denied" in reasons(store)["secret.json"]


def test_a_broken_bundle_takes_its_tools_with_it_and_brings_them_back(store, folder):
    id, kept = with_tool(store)
    _, other = with_tool(store)
    path = folder / f"weather-{id[-12:]}" / "bundle.json"
    whole = path.read_text()
    path.write_text(whole[:20])
    store.sync()
    assert store.tools() == [other]
    assert store.bundle(id) is None
    assert list(reasons(store)) == ["bundle.json"]
    with pytest.raises(ConflictError, match="in the way"):
        store.put_bundle(id, bundle())
    path.write_text(whole)
    store.sync()
    assert store.tool(id, "forecast", "1") == kept
    assert store.mistakes() == []
    path.unlink()
    store.sync()
    assert "missing" in reasons(store)["bundle.json"]
    path.write_text(whole)
    store.sync()
    assert (store.tool(id, "forecast", "1"), store.mistakes()) == (kept, [])


def test_copies_clash_and_the_first_stays(store, folder):
    id, kept = with_tool(store)
    path = file_of(folder)
    copy = path.with_name("copy.json")
    shutil.copy(path, copy)
    store.sync()
    assert store.tools() == [kept]
    assert "forecast@1.json already" in reasons(store)["copy.json"]
    data = json.loads(path.read_text())
    copy.write_text(json.dumps(data | {"version": "2"}))
    store.sync()
    assert '"id"' in reasons(store)["copy.json"]
    del data["id"]
    copy.write_text(json.dumps(data | {"version": "2"}))
    store.sync()
    assert store.mistakes() == []
    assert store.tool(id, "forecast", "2").id != kept.id
    shutil.copytree(path.parents[1], folder / "copied")
    store.sync()
    assert "already" in reasons(store)["bundle.json"]
    assert len(store.tools()) == 2


def test_who_clashed_takes_the_place_of_who_goes(store, folder):
    id, kept = with_tool(store)
    shutil.copy(file_of(folder), file_of(folder).with_name("copy.json"))
    store.sync()
    store.delete_tool(id, "forecast", "1")
    store.sync()
    assert (store.tool(id, "forecast", "1"), store.mistakes()) == (kept, [])


def test_two_files_that_exchange_what_they_are(store, folder):
    id, one = with_tool(store)
    two = store.put_tool(id, "other", "1", tool(description="Other."))
    first, second = file_of(folder), file_of(folder, "other")
    texts = first.read_text(), second.read_text()
    first.write_text(texts[1])
    second.write_text(texts[0])
    store.sync()
    assert store.mistakes() == []
    assert (store.tool(id, "forecast", "1"), store.tool(id, "other", "1")) == (one, two)


def test_a_file_that_claims_a_built_in_id(opened, folder):
    mine = built_in()
    store = opened(mine)
    write(folder / "mine" / "bundle.json", {"slug": "mine", "id": mine[0].id, "isBuiltIn": True})
    store.sync()
    assert store.bundle(mine[0].id) == mine[0]
    assert "built-in" in reasons(store)["bundle.json"]


def test_a_put_into_the_way_of_a_broken_file(store, folder):
    id, _ = with_tool(store)
    file_of(folder).write_text("{")
    with pytest.raises(ConflictError, match="can't be used"):
        store.patch_tool(id, "forecast", "1", False)
    store.sync()
    with pytest.raises(ConflictError, match="can't be used"):
        store.put_tool(id, "forecast", "1", tool())
    store.delete_tool(id, "forecast", "1")
    store.put_tool(id, "forecast", "1", tool())


def test_a_delete_does_not_hit_what_has_become_another_tool(store, folder):
    id, _ = with_tool(store)
    file_of(folder).write_text(file_of(folder).read_text().replace('"version": "1"', '"version": "2"'))
    with pytest.raises(NotFoundError):
        store.delete_tool(id, "forecast", "1")
    assert store.tool(id, "forecast", "2")


def test_folders_that_are_links_lead_nowhere(store, folder, tmp_path):
    id = an_id()
    store.put_bundle(id, bundle())
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "sum.json").write_text(json.dumps(BY_HAND))
    (next(folder.glob("weather-*")) / "tools").symlink_to(tmp_path / "outside")
    store.sync()
    assert "link" in reasons(store)["tools"]
    assert store.tools() == []
    with pytest.raises(UnavailableError, match="Not a directory"):
        store.put_tool(id, "a", "1", tool())
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["sum.json"]


def test_drafts_of_a_process_that_was_killed_are_cleared(store, folder):
    with_tool(store)
    before = files(folder)
    for place in (folder, next(folder.glob("weather-*")), file_of(folder).parent):
        (place / ".onetool-0123").write_text("half")
    (folder / ".onetool-4567").mkdir()
    (folder / ".onetool-4567" / "bundle.json").write_text("{}")
    store.sync()
    assert files(folder) == before


def test_what_else_lies_there_is_left_alone(store, folder):
    _, kept = with_tool(store)
    (folder / "README.md").write_text("Mine.")
    (folder / ".git").mkdir()
    (folder / "empty").mkdir()
    (file_of(folder).parent / "notes.txt").write_text("…")
    store.sync()
    assert (store.tools(), store.mistakes()) == ([kept], [])
    assert (folder / "README.md").exists()


def test_state_that_is_deleted_comes_back(opened, folder):
    store = opened()
    id, kept = with_tool(store)
    shutil.rmtree(folder / ".state")
    assert store.tool(id, "forecast", "1") == kept
    store.put_tool(id, "other", "1", tool())
    assert len(opened().tools()) == len(store.tools()) == 2


@pytest.mark.parametrize("change", ["put", "patch", "rename", "bundle", "all"])
def test_what_a_person_writes_over_a_change_before_it_is_durable_counts(store, folder, monkeypatch, change):
    id, _ = with_tool(store)
    sync_folder, edited = files_of._sync_folder, []

    def edit(root, path):
        sync_folder(root, path)
        for file in [*folder.glob("*/tools/*.json"), *folder.glob("*/bundle.json")]:
            if not edited and (b"by-hand" in file.read_bytes() or change in ("patch", "rename")):
                edited.append(file)
                new = file.with_name("new")
                new.write_bytes(file.read_bytes().replace(b"by-hand", b"by-HAND").replace(b"weather", b"WEATHER"))
                new.rename(file)

    monkeypatch.setattr(files_of, "_sync_folder", edit)
    if change == "put":
        store.put_tool(id, "other", "1", tool(description="by-hand"))
    elif change == "patch":
        store.patch_tool(id, "forecast", "1", False)
    elif change == "rename":
        store.rename_tool(id, "forecast", "1", "new", "1")
    elif change == "bundle":
        store.put_bundle(id, bundle(description="by-hand"))
    else:
        store.put_all(replace(store.bundle(id), id=an_id(), slug="more", description="by-hand"), [])
    monkeypatch.undo()
    assert edited
    store.sync()
    texts = [one.description for one in (*store.tools(ListQuery(include_disabled=True)), *store.bundles())]
    assert [one for one in texts if "HAND" in one or "WEATHER" in one], texts


def test_what_fails_after_the_files_are_written_does_not_fail_the_write(store, folder, monkeypatch):
    id, _ = with_tool(store)

    def fail(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "run", fail)
        put = store.put_tool(id, "other", "1", tool())
    assert store.tool(id, "other", "1") == put


def test_files_are_for_people(store, folder):
    id = an_id()
    store.put_bundle(id, bundle("größe", display_name="Größe"))
    store.put_tool(id, "天气", "1.0", tool(tags=("a",)))
    (path,) = folder.glob("größe-*/bundle.json")
    assert path.read_text().startswith('{\n  "slug": "größe",\n  "displayName": "Größe",\n  "description": "",\n')
    (path,) = folder.glob("größe-*/tools/天气@1.0~*.json")
    text = path.read_text()
    assert text.endswith('"\n}\n')
    assert list(json.loads(text)) == [
        *("slug", "version", "type", "displayName", "description", "tags", "isEnabled", "argSchema", "outputSchema"),
        *("httpImpl", "limits", "id", "createdAt", "modifiedAt", "schemaVersion", "digest"),
    ]
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_tools_in_the_copy_of_a_bundle_are_not_the_bundles(store, folder):
    id, kept = with_tool(store)
    shutil.copytree(next(folder.glob("weather-*")), folder / "copied")
    store.sync()
    write(folder / "copied" / "tools" / "sum.json", BY_HAND)
    store.sync()
    assert store.tools() == [kept]
    assert store.tool(id, "sum", "1") is None
    path = folder / "copied" / "bundle.json"
    path.write_text(json.dumps({"slug": "copied"}))
    store.sync()
    assert store.bundle(id).slug == "weather"
    assert {one.slug for one in store.bundles()} == {"weather", "copied"}
    assert [one.slug for one in store.tools()].count("sum") == 1
    assert list(reasons(store)) == ["forecast@1.json"]


def test_clashes_do_not_make_two_processes_look_forever(opened, folder):
    first, second = opened(), opened()
    with_tool(first)
    shutil.copy(file_of(folder), file_of(folder).with_name("copy.json"))
    for _ in range(2):
        first.sync()
        second.sync()
    state = first.state()
    for _ in range(3):
        assert not second.sync()
        assert not first.sync()
    assert first.state() == state


def test_schemas_that_many_tools_share_are_compiled_once(store, folder, monkeypatch):
    compiled = []
    monkeypatch.setattr(validation, "_costs", {})
    monkeypatch.setattr(validation, "CompiledSchema", lambda *a, **how: compiled.append(a) or CompiledSchema(*a, **how))
    (folder / "many" / "tools").mkdir(parents=True)
    (folder / "many" / "bundle.json").write_text('{"slug": "many"}')
    for number in range(12):
        kind = ("string", "number", "nonsense")[number % 3]
        text = json.dumps(
            {
                "slug": f"t{number}",
                "version": "1",
                "type": "script",
                "argSchema": {"type": "object", "properties": {"a": {"type": kind}}},
                "outputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
                "scriptImpl": {"code": "1"},
            }
        )
        (folder / "many" / "tools" / f"{number}.json").write_text(text)
    assert len(store.tools()) == 8
    assert len([one for one in compiled if "nonsense" not in str(one)]) == 3
    assert sum("argSchema: " in reason for reason in reasons(store).values()) == 4
