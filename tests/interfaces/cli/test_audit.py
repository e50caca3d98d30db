"""`onetool audit`: filters, JSON lines, a table, following, and what completes a line."""

import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from helpers import cli, each
from services.journals import Audited

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.principal import Principal
from onetool.core.spec import ToolSpec
from onetool.database.migrations import migrate
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.cli import audit as command
from onetool.interfaces.cli import cli as root
from onetool.services.journal.row import KINDS, REASONS

CI = Principal(name="ci", owner="ci")
ANN = Principal(name="ann", owner="ann", role="edit")
HOUR = 3600
SPEC = ToolSpec(name="web.get", description="")


@pytest.fixture
def folder(own_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onetool.interfaces.cli.output._Stdout.stream", None)  # other tests of this process claim it
    return own_home / ".onetool"


@pytest.fixture(scope="module")
def filled_database(postgres):
    """Its address, and it with lines."""
    url = postgres.new_schema()
    found = Postgres(url, prepare=migrate)
    yield url, filled(found)
    found.close()


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request, folder):
    """Where the lines are."""
    if request.param == "sqlite":
        return filled(state_in(folder))
    url, database = request.getfixturevalue("filled_database")
    use_database(folder, url)
    return database


@pytest.fixture
def kept_file(folder):
    return filled(state_in(folder))


def state_in(folder):
    return SqliteDatabase(folder / "state.db", makes_folder=True)


def use_database(folder, url):
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "onetool.yaml").write_text(json.dumps({"database": url}))


def filled(place):
    for hours in (50, 3, 1):
        log = Audited(place, AuditConfig(), lambda: time.time() - hours * HOUR)  # noqa: B023
        log.note("call", "web.get", principal=CI, via="mcp", id=f"{hours}a", ms=1.25)
        log.note("call", "time.now", principal=ANN, outcome="execution_error", reason="timeout", id=f"{hours}b")
        log.note("change", "PUT /tools/bundles/w", principal=ANN, outcome="conflict", status=409, id=f"{hours}c")
        log.close()
    return place


def run(*args):
    result = CliRunner().invoke(root, ["audit", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def ids(*args):
    return [json.loads(line)["id"] for line in run("--json", *args).stdout.splitlines()]


def test_a_known_call_is_found_by_its_arguments(folder):
    assert ids("--args", "{}") == []
    assert not folder.exists()
    log = Audited(state_in(folder), AuditConfig())
    for id, args in (("one", {"pin": 1, "who": "é"}), ("two", {"pin": 2, "who": "é"}), ("three", {"pin": 1})):
        log.record(CallEvent.of(call=ToolCall(id, "web.get", args, "mcp"), spec=SPEC, duration_ms=1.0))
    log.close()
    assert ids("--args", '{"who": "é", "pin": 1}') == ["one"]
    assert ids("--args", '{"pin": 3}') == []
    piped = CliRunner().invoke(root, ["audit", "--json", "--args", "-"], input='{"pin": 1}')
    assert [json.loads(line)["id"] for line in piped.stdout.splitlines()] == ["three"]


@pytest.mark.parametrize("args", ["{", "3", "[1]"])
def test_arguments_that_are_none_are_told(kept_file, args):
    result = run("--args", args)
    assert result.exit_code == 2
    assert "--args" in result.stderr


def test_the_newest_is_the_last(kept):
    assert ids() == [f"{hours}{part}" for hours in (50, 3, 1) for part in "abc"]
    assert ids("--limit", "2") == ["1b", "1c"]


@each(
    ("args", "found"),
    [
        (["--since", "2h"], ["1a", "1b", "1c"]),
        (["--since", "4h", "--until", "2h"], ["3a", "3b", "3c"]),
        (["--until", "2d"], ["50a", "50b", "50c"]),
        (["--since", "2000-01-01", "--until", "2001-01-01T12:00"], []),
        (["--who", "ci"], ["50a", "3a", "1a"]),
        (["--kind", "change"], ["50c", "3c", "1c"]),
        (["--tool", "web.*"], ["50a", "3a", "1a"]),
        (["--outcome", "ok"], ["50a", "3a", "1a"]),
        (["--outcome", "error", "--since", "2h"], ["1b", "1c"]),
        (["--outcome", "timeout", "--limit", "1"], ["1b"]),
        (["--outcome", "409", "--limit", "2"], ["3c", "1c"]),
        (["--who", ""], []),
    ],
)
def test_filters(kept, args, found):
    assert ids(*args) == found


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--since", "yesterday"], "'yesterday' is not a time: write 30m, 2h, 7d"),
        (["--kind", "calls"], "'calls' is not one of"),
        (["--limit", "0"], "0 is not in the range"),
    ],
)
def test_what_is_wrong_is_told(kept_file, args, told):
    result = run(*args)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_person_reads_columns(kept):
    lines = run("--limit", "2").stdout.splitlines()
    assert lines[0].split() == ["time", "(UTC)", "who", "from", "via", "kind", "what", "outcome", "ms"]
    assert lines[1].split()[2:] == ["ann", "-", "-", "call", "time.now", "execution_error:", "timeout"]
    assert lines[2].split()[-2:] == ["409", "conflict"]
    assert "\x1b" not in run().stdout


def test_no_log_is_told(folder):
    result = run()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No matching lines in" in result.stderr
    assert ids() == []
    assert not folder.exists()


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request, folder):
    """Where a log can be."""
    if request.param == "sqlite":
        return state_in(folder)
    use_database(folder, request.getfixturevalue("database_url"))
    return request.getfixturevalue("database")


@pytest.fixture
def following():
    """Call it: what `onetool audit --follow --json` prints, line by line, and then what it has said."""
    code = "from onetool.__main__ import main; main()"
    started = []

    def follow(*options):
        command = [sys.executable, "-c", code, "audit", "--follow", "--json", *options]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        started.append(process)
        return (lambda: json.loads(process.stdout.readline())["what"]), process.stderr.readline

    yield follow
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def test_it_follows(empty, following):
    log = Audited(empty, AuditConfig())
    log.write("admin", "before")
    next_line, _ = following("--kind", "admin")
    assert next_line() == "before"
    log.write("login", "not wanted")
    log.write("admin", "after")
    assert next_line() == "after"
    log.close()


def test_it_follows_a_log_that_begins_later_and_a_new_one_in_its_place(folder, following):
    next_line, _ = following()
    for name in ("one", "two"):
        log = Audited(state_in(folder), AuditConfig())
        for number in (1, 2, 3):
            log.write("admin", f"{name} {number}")
        log.close()
        assert [next_line() for _ in range(3)] == [f"{name} {number}" for number in (1, 2, 3)]
        for file in folder.glob("state.db*"):
            file.unlink()


@pytest.mark.long
def test_it_follows_on_when_the_database_is_back(folder, postgres, database, database_url, following):
    use_database(folder, database_url)
    log = Audited(database, AuditConfig())
    log.write("admin", "before")
    next_line, report = following()
    assert next_line() == "before"
    postgres.stop()
    try:
        assert "The audit log can't be read now: the database can't be reached" in report()
        log.note("admin", "after")
    finally:
        postgres.start_again()
    assert next_line() == "after"
    log.close()


def test_a_known_call_is_found_in_a_database(folder, database, database_url):
    use_database(folder, database_url)
    log = Audited(database, AuditConfig())
    for id, args in (("one", {"pin": 1}), ("two", {"pin": 2})):
        log.record(CallEvent.of(call=ToolCall(id, "web.get", args, "mcp"), spec=SPEC, duration_ms=1.0))
    log.close()
    assert ids("--args", '{"pin": 1}') == ["one"]
    assert "No matching lines in the table events of the database." in run("--who", "nobody").stderr


def test_a_database_that_is_away_or_has_no_tables_is_told(folder, database_url):
    use_database(folder, "postgresql://postgres@127.0.0.1:1/postgres")
    result = run()
    assert (result.exit_code, result.stdout) == (1, "")
    why = "The audit log can't be read: the database can't be reached; nothing has changed, try again."
    assert result.stderr == f"Error: {why} `onetool db` shows the state of the database.\n"
    use_database(folder, database_url)
    result = run()
    assert result.exit_code == 1
    assert "The audit log can't be read: the database has no tables: run `onetool db init`" in result.stderr


def test_an_import_into_a_new_database_is_noted_there(tmp_path, database_url):
    config = {"database": database_url, "audit": "required"}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    done = cli("--config", "onetool.yaml", "db", "import", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = cli("--config", "onetool.yaml", "audit", "--json", cwd=tmp_path)
    assert [(one["what"], one["outcome"]) for one in map(json.loads, shown.stdout.splitlines())] == [
        ("db import", "begun"),
        ("db import", "ok"),
    ]


def test_a_config_that_is_wrong_hides_no_log_of_its_folder(kept_file):
    (kept_file.file.parent / "onetool.yaml").write_text("{packs: [")
    assert len(ids()) == 9


def test_names_and_kinds_complete_a_line(kept):
    assert command.KINDS == KINDS
    assert set(command.OUTCOMES[-2:]) <= REASONS
    from click.shell_completion import ShellComplete

    def completed(*args):
        found = ShellComplete(root, {}, "onetool", "_X").get_completions(["audit", *args[:-1]], args[-1])
        return [one.value for one in found]

    assert completed("--who", "") == ["ann", "ci"]
    assert completed("--kind", "ca") == ["call"]
    assert completed("--outcome", "e") == ["error", "execution_error"]
