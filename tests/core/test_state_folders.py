"""Which folders get the marker of state, and when."""

import asyncio
from pathlib import Path

import pytest
from helpers import cli, each

from onetool.app import App
from onetool.core.state_folders import (
    IGNORE,
    MARKER,
    is_marked,
    is_name_of,
    is_state_file,
    make_home,
    make_state_folder,
    mark_home,
)
from onetool.sources.bundles.store.folder import make_state
from onetool.sources.mcp_servers.server_log import ServerLog


def write_log(folder: Path) -> None:
    ServerLog("one", folder / "one.log", lambda text: text).note("hi")


WRITERS = [make_state_folder, write_log]


@pytest.mark.attack("state")
@pytest.mark.parametrize("use", WRITERS)
def test_folders_from_before_are_marked_when_they_are_used(tmp_path: Path, use) -> None:
    folder = tmp_path / "old"
    folder.mkdir(0o755)
    use(folder)
    assert is_marked(folder)
    assert (folder / IGNORE).read_text() == "*\n"
    assert folder.stat().st_mode & 0o077 == 0


def test_the_state_of_bundles_is_marked(tmp_path: Path) -> None:
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state" / IGNORE).write_text("*\n")
    make_state(tmp_path)
    assert is_marked(tmp_path / ".state")
    assert not is_marked(tmp_path)


def test_a_marker_of_a_crash_counts(tmp_path: Path) -> None:
    (tmp_path / IGNORE).touch()
    make_state_folder(tmp_path)
    assert (tmp_path / IGNORE).read_text() == "*\n"
    (tmp_path / MARKER).write_text("")
    assert is_marked(tmp_path)


@pytest.mark.parametrize(
    "names",
    [[], ["stats.db", "stats.db-wal", "run_history"], ["sessions", "bundles", "audit", ".gitignore"], ["secrets.yaml"]],
)
def test_a_home_with_nothing_but_state_is_marked(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    make_home(tmp_path)
    assert is_marked(tmp_path)


@pytest.mark.parametrize("names", [["onetool.yaml"], ["team.yaml", "stats.db"], ["src"], ["README.md"]])
def test_a_folder_shared_with_a_project_is_not(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / IGNORE).write_text("*\n")
    (tmp_path / "results").mkdir()
    mark_home(tmp_path)
    assert not is_marked(tmp_path)
    assert is_marked(tmp_path / "audit")
    assert not is_marked(tmp_path / "results")


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    mark_home(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.attack("state")
def test_the_home_of_another_server_from_before_is_closed_by_its_own_start(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "home" / "page_sessions").mkdir(parents=True)
    (tmp_path / "home" / "page_sessions" / "sessions.json").write_text("KEY")
    (tmp_path / "a.txt").write_text("fine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONETOOL_HOME", "home")
    with App.open() as app:
        assert asyncio.run(app.run("fs.read_file(path='a.txt')")).value() == "fine"
    monkeypatch.setenv("ONETOOL_HOME", "second")
    with App.open() as app:
        error = asyncio.run(app.run("fs.read_file(path='home/page_sessions/sessions.json')")).error
    assert error is not None
    assert MARKER in error.message


@each(
    ("name", "expected"),
    [
        ("stats.db", True),
        ("STATS.DB", True),
        ("stats.db-wal", True),
        ("stats.db.broken", True),
        (".stats.db.a1b2", True),
        ("stats.db~", True),
        ("stats.dbx", False),
        ("my-stats.db", False),
        ("stats", False),
    ],
)
def test_names_that_are_made_of_others(name: str, expected: bool) -> None:
    assert is_name_of(name, ("stats.db",)) is expected


@pytest.mark.attack("state")
@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("onetool.yaml", "database/0123456789abcdef/.onetool-state"),
        ("secrets.yaml", "database/0123456789abcdef/.onetool-state"),
        ("secrets.yaml", "onetool.yaml"),
        ("secrets.yaml", "stats.db"),
        (".secrets.yaml.a1", "onetool.yaml"),
        ("onetool.yaml", "secrets.yaml"),
        ("onetool.yaml.bak", "stats.db"),
        ("stats.db", "onetool.yaml"),
        ("stats.db-wal", "onetool.yaml"),
        ("run_history", "onetool.yaml"),
        ("database.key", "onetool.yaml"),
        ("state.db", "onetool.yaml"),
        ("state.db-wal", "secrets.yaml"),
        ("state.db.damaged-1700000000", "onetool.yaml"),
        ("state.db", ".state.db.0123456789abcdef.lock"),
        ("state.db-wal", ".state.db.0123456789abcdef.lock"),
        (".state.db.0123456789abcdef.lock", "onetool.yaml"),
    ],
)
def test_files_of_state_are_known_by_what_lies_beside_them(tmp_path: Path, name: str, beside: str) -> None:
    (tmp_path / beside).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / beside).touch()
    assert is_state_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("onetool.yaml", "README.md"),
        ("onetool.yaml", "onetool.yaml.bak"),
        ("secrets.yaml", "secrets.yaml.bak"),
        ("secrets.yaml.bak", "secrets.yaml"),
        ("stats.db", "stats.db-wal"),
        ("state.db", "state.db-wal"),
        ("secrets.yaml", "database/schema.sql"),
        ("README.md", "onetool.yaml"),
    ],
)
def test_files_of_a_project_are_not_state(tmp_path: Path, name: str, beside: str) -> None:
    (tmp_path / beside).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / beside).touch()
    assert not is_state_file(str(tmp_path / name))


@pytest.mark.attack("state")
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("command", [("tokens", "add", "boss", "--role", "admin"), ("bundles", "create", "mine")])
def test_commands_mark_the_home_that_they_write_to(tmp_path: Path, command: tuple[str, ...], exists: bool) -> None:
    home = tmp_path / "home"
    if exists:
        home.mkdir()
    done = cli(*command, cwd=tmp_path, env={"ONETOOL_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert is_marked(home)
