"""Several processes append to one audit log. One of them is killed in the middle, or keeps the lock."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from helpers import until
from services.journals import Audited, lines_in

from onetool.config.model import AuditConfig
from onetool.database.sqlite import SqliteDatabase
from onetool.services import journal
from onetool.services.journal import AuditUnavailableError, table

WRITER = """
import sys
from pathlib import Path
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal import Journal, JournalSettings
log = Journal(SqliteDatabase(Path(sys.argv[1]) / "state.db"), settings=JournalSettings(audits=True))
for number in range(int(sys.argv[3])):
    log.require(log.entry("admin", "x" * 250, id=f"{sys.argv[2]}:{number}"))
    print(number, flush=True)
log.close()
"""


def started(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.long
def test_eight_processes_append_at_once_and_no_line_is_lost(tmp_path: Path) -> None:
    writers = [started(tmp_path, name, 100) for name in "abcdefgh"]
    assert [(writer.communicate(timeout=120)[0].count("\n"), writer.returncode) for writer in writers] == [(100, 0)] * 8
    ids = [line["id"] for line in lines_in(tmp_path)]
    for name in "abcdefgh":
        assert [one for one in ids if one.startswith(name)] == [f"{name}:{n}" for n in range(100)]


@pytest.mark.attack("event queue")
def test_a_killed_process_has_lost_no_line_that_it_wrote_and_others_go_on(tmp_path: Path) -> None:
    killed, other = started(tmp_path, "k", 1_000_000), started(tmp_path, "o", 200)
    assert killed.stdout is not None
    while killed.stdout.readline() != "100\n":
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    written = int(["100", *killed.communicate(timeout=10)[0].split()][-1])
    assert other.communicate(timeout=120)[0].count("\n") == 200
    ids = [line["id"] for line in lines_in(tmp_path)]
    assert [one for one in ids if one.startswith("o")] == [f"o:{n}" for n in range(200)]
    of_killed = [one for one in ids if one.startswith("k")]
    assert of_killed == [f"k:{n}" for n in range(len(of_killed))]
    assert len(of_killed) > written


@pytest.mark.attack("event queue")
def test_a_lock_that_is_held_for_ever_stops_no_call_unless_the_log_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.EventTable.append, "__defaults__", (0.05,))
    monkeypatch.setattr(journal, "RETRY_S", 0.05)
    database = SqliteDatabase(tmp_path / "state.db")
    required, usual = (Audited(database, AuditConfig(mode=mode)) for mode in ("required", "usual"))
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(AuditUnavailableError, match="another process"):
            required.write("call", "web.get")
        usual.note("admin", "waits")
        until(lambda: usual.problem)
    until(lambda: [line["what"] for line in lines_in(tmp_path)] == ["waits"])
    usual.close()
    required.close()


def test_the_file_of_the_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    log = Audited(SqliteDatabase(tmp_path / "state.db"), AuditConfig())
    log.write("admin", "x")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("state.db*")} == {0o600}
    log.close()


@pytest.mark.attack("event queue")
@pytest.mark.parametrize("what", ["link", "folder"])
def test_nothing_is_written_through_a_link_or_to_what_is_no_file(tmp_path: Path, what: str) -> None:
    other = tmp_path / "other"
    if what == "link":
        other.write_text("")
        (tmp_path / "state.db").symlink_to(other)
    else:
        (tmp_path / "state.db").mkdir()
    log = Audited(SqliteDatabase(tmp_path / "state.db"), AuditConfig(mode="required"))
    with pytest.raises(AuditUnavailableError, match=r"can't be written .*(a symbolic link|not a regular file)"):
        log.write("admin", "x")
    log.close()
    assert what == "folder" or other.read_text() == ""
