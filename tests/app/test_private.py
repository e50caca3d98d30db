"""What is OneTool's own stays out of the reach of tools, though it lies in a folder that they may use."""

import asyncio

import pytest
from helpers import trusted

from onetool.app import App
from onetool.app.database import state_file
from onetool.core.state_folders import MARKER


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text(
        "topics: [{pattern: 'c*', file: onetool.yaml}, {pattern: 'p*', file: prompts.yaml}]\n"
        "http: {token: tok-0123456789abcdef}\naliases: {now: time.now, list: fs.list_dir}\n"
    )
    (tmp_path / ".onetool" / "prompts.yaml").write_text("run: Go.\n")
    trusted(tmp_path)
    with App.open() as app:
        yield app


def failure(app, code):
    error = asyncio.run(app.run(code)).error
    assert error is not None
    return error.message


def value(app, code, allowed=None):
    return asyncio.run(app.run(code, allowed)).value()


def test_stored_results_are_read_by_their_handle_and_in_no_other_way(app, tmp_path):
    stored = app.runtime.store_result("somebody's own text")
    database = state_file(app.config)
    for name in ("state.db", "state.db-wal"):
        assert database.with_name(name).exists()
        assert "belongs to OneTool" in failure(app, f"fs.read_file(path='.onetool/{name}', encoding='base64')")
    (tmp_path / "link").symlink_to(tmp_path / ".onetool" / "state.db")
    assert not asyncio.run(app.run("fs.read_file(path='link')")).ok
    assert value(app, f"ot.result(handle={stored.handle!r})['lines']") == ["somebody's own text"]


def test_what_was_counted_is_not_read_as_a_file(app):
    value(app, "time.now()")
    app.journal.flush()
    assert "belongs to OneTool" in failure(app, "fs.read_file(path='.onetool/state.db', encoding='base64')")


def test_the_config_and_what_it_includes_are_closed(app, tmp_path):
    assert "belongs to OneTool" in failure(app, "fs.read_file(path='.onetool/onetool.yaml')")
    assert "belongs to OneTool" in failure(app, "fs.list_dir(path='.onetool')")


def test_also_where_they_lie_in_the_middle_of_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onetool.yaml").write_text("include: [more.yaml]\nstats: {enabled: false}\n")
    (tmp_path / "more.yaml").write_text("http: {token: tok-0123456789abcdef}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        for name in ("onetool.yaml", "more.yaml"):
            assert "belongs to OneTool" in failure(app, f"fs.read_file(path={name!r})")


def project(tmp_path, roots):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("data")
    (tmp_path / "project" / ".onetool").mkdir(parents=True)
    (tmp_path / "project" / "b.txt").write_text("own")
    file = tmp_path / "project" / ".onetool" / "onetool.yaml"
    file.write_text(f"fs: {{roots: [., {roots}]}}\n")
    return file


@pytest.mark.parametrize("roots", ["..", "/", "../data", "out"])
def test_roots_of_a_project_lie_below_it(tmp_path, monkeypatch, roots):
    project(tmp_path, roots)
    (tmp_path / "project" / "out").symlink_to("../data")
    monkeypatch.chdir(trusted(tmp_path / "project"))
    path = str(tmp_path / "data" / "a.txt")
    with App.open() as app:
        assert not asyncio.run(app.run(f"fs.read_file(path={path!r})")).ok
        assert not asyncio.run(app.run("fs.read_file(path='a.txt')")).ok
        asyncio.run(app.run(f"ot.stats(output='{tmp_path}/data/r.html')"))
        assert not (tmp_path / "data" / "r.html").exists()
        assert value(app, "fs.read_file(path='b.txt')") == "own"
        [told] = [mistake for mistake in app.mistakes if mistake.key == "fs.roots[1]"]
        assert "~/.onetool/onetool.yaml" in str(told.hint)


def test_unless_the_person_says_otherwise(tmp_path, own_home, monkeypatch):
    file = project(tmp_path, "../data")
    monkeypatch.chdir(tmp_path / "project")
    with App.open(file) as app:
        assert value(app, "fs.read_file(path='a.txt')") == "data"
    monkeypatch.setenv("ONETOOL_CONFIG", str(file))
    with App.open() as app:
        assert value(app, "fs.read_file(path='a.txt')") == "data"
    monkeypatch.delenv("ONETOOL_CONFIG")
    (own_home / ".onetool").mkdir()
    (own_home / ".onetool" / "onetool.yaml").write_text(f"fs: {{roots: [{tmp_path}/data]}}\n")
    with App.open() as app:
        assert value(app, "fs.read_file(path='a.txt')") == "data"
    monkeypatch.chdir(tmp_path)  # nothing is found there but the person's own
    with App.open() as app:
        assert value(app, "fs.read_file(path='a.txt')") == "data"
        app.reload()
        assert value(app, "fs.read_file(path='a.txt')") == "data"


@pytest.mark.parametrize("topic", ["config", "prompts"])
def test_no_note_is_written_into_what_a_reload_reads(app, topic):
    assert "not stored" in failure(app, f"ot.notify(topic={topic!r}, message='x: y')")


@pytest.mark.attack("state")
@pytest.mark.parametrize(
    "file", ["log/notes.yaml", "packs/notes.py", "results/notes.yaml", "../.git/notes", "../a/.b/c"]
)
def test_no_note_is_written_into_other_folders_of_ours(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text(f"topics: [{{pattern: '*', file: {file}}}]\n")
    (tmp_path / ".onetool" / "log").mkdir()
    trusted(tmp_path)
    with App.open() as app:
        assert "not stored" in failure(app, "ot.notify(topic='a', message='x')")
    assert not (tmp_path / ".onetool" / file).exists()


def test_notes_lie_beside_a_config_that_came_after_the_state(own_home, tmp_path, monkeypatch):
    """The folder was marked when there was nothing but state in it."""
    monkeypatch.chdir(tmp_path)
    home = own_home / ".onetool"
    with App.open() as app:
        value(app, "time.now()")
        app.journal.flush()
    assert (home / MARKER).exists()
    (home / "onetool.yaml").write_text("topics: [{pattern: '*', file: notes.yaml}]\n")
    with App.open() as app:
        assert value(app, "ot.notify(topic='a', message='x')") == "OK: a -> notes.yaml"


def test_folders_of_a_project_that_are_called_so_are_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine.txt").write_text("mine")
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        assert value(app, "fs.read_file(path='results/mine.txt')") == "mine"


def test_under_an_allow_list_the_rest_is_not_there(app):
    allowed = ["time.now", "ot.config", "ot.aliases", "ot.stats", "ot.help", "ot.search", "ot.packs", "ot.tools"]
    value(app, "fs.list_dir(path='.')")
    value(app, "time.now()")
    assert value(app, "ot.config()['aliases']", allowed) == {"now": "time.now"}
    assert value(app, "ot.aliases()", allowed) == ["now -> time.now"]
    told = value(app, "[row['tool'] for row in ot.stats()['tools']]", allowed)
    assert "time.now" in told
    assert "fs.list_dir" not in told
    assert value(app, "ot.packs(info='list')", allowed) == ["ot", "time"]
    assert "fs." not in str(value(app, "ot.search('list a folder', limit=20)", allowed))
    assert "fs." not in value(app, "ot.help('list_dir')", allowed)
