"""`onetool bundles edit`, `copy` and `rename`, as a program runs them."""

import json

import pytest
from helpers import invoke

TOOL = {"type": "script", "scriptImpl": {"code": "1"}, "description": "One."}


@pytest.fixture
def bundles(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ONETOOL_HOME", str(tmp_path / "state"))

    def run(*words, stdin=None):
        return invoke("bundles", *words, cwd=tmp_path, stdin=stdin)

    assert run("add", "mine/one", "-", "--create", stdin=json.dumps(TOOL)).returncode == 0
    return run


def shown(bundles, place):
    return json.loads(bundles("show", place, "--json").stdout)


def test_an_edit_is_a_new_version(bundles):
    words = ("--set", "description=Two.", "--set", "scriptImpl.code=1 + 1", "--set", 'tags=["b"]')
    done = bundles("edit", "mine/one", *words)
    assert done.returncode == 0, done.stderr
    new = json.loads(done.stdout)
    assert (new["version"], new["description"], new["scriptImpl"], new["tags"]) == (
        "2",
        "Two.",
        {"code": "1 + 1"},
        ["b"],
    )
    assert shown(bundles, "mine/one@1")["description"] == "One."


def test_an_edit_from_a_file(bundles):
    text = json.dumps({**shown(bundles, "mine/one@1"), "description": "Three."})
    text = json.dumps({key: one for key, one in json.loads(text).items() if key not in ("bundle", "name", "needs")})
    done = bundles("edit", "mine/one", "-", "--as", "3.0", stdin=text)
    assert done.returncode == 0, done.stderr
    assert shown(bundles, "mine/one@3.0")["description"] == "Three."


def test_an_edit_without_a_terminal_says_what_changes(bundles):
    done = bundles("edit", "mine/one")
    assert done.returncode == 2
    assert "--set KEY=VALUE" in done.stderr
    assert bundles("edit", "mine/one", "--set", "nonsense").returncode == 2


def test_a_version_that_is_there_stays(bundles):
    done = bundles("edit", "mine/one", "--as", "1", "--set", "description=x")
    assert done.returncode == 1
    assert "already exists" in done.stderr
    assert shown(bundles, "mine/one@1")["description"] == "One."


def test_copy_and_rename(bundles):
    done = bundles("copy", "mine/one", "other/uno", "--create", "--set", "description=Uno.")
    assert done.returncode == 0, done.stderr
    before = shown(bundles, "other/uno@1")
    assert before["description"] == "Uno."
    done = bundles("rename", "other/uno", "eins@7")
    assert (done.returncode, json.loads(done.stdout)["name"]) == (0, "other.eins")
    after = shown(bundles, "other/eins@7")
    assert after["id"] == before["id"]
    assert bundles("show", "other/uno").returncode == 1


def test_a_rename_stays_in_its_bundle(bundles):
    done = bundles("rename", "mine/one", "other/two")
    assert done.returncode == 1
    assert "copy" in done.stderr


def test_a_built_in_tool_is_copied_and_not_renamed(bundles):
    assert json.loads(bundles("copy", "time/now", "mine/now").stdout)["pythonImpl"] == {"func": "time.now"}
    done = bundles("rename", "time/now", "then")
    assert done.returncode == 1
    assert "built in" in done.stderr
