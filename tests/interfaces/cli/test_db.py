"""`onetool db`: what is stored, tables, copies, and what is said when the database or the file can't be used."""

import json
import os
import pty
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import psycopg
import pytest
from helpers import cli, invoke, start, until

from onetool.core.state_folders import MARKER
from onetool.database.migrations import NEWEST
from onetool.database.sqlite import SqliteDatabase


@pytest.fixture
def folder(tmp_path, database_url):
    """A folder with a config that is named; its state lies beside it."""
    return configured(tmp_path / "home", database_url)


def configured(folder, url):
    folder.mkdir()
    (folder / "onetool.yaml").write_text(json.dumps({"audit": "none", **({"database": url} if url else {})}))
    return folder


def db(folder, *args, **more):
    return invoke("--config", str(folder / "onetool.yaml"), "db", *args, cwd=folder, **more)


def said(folder, *args):
    done = db(folder, *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def moved(folder, *args):
    """What was done with each store that has anything."""
    rows = {row.pop("store"): row for row in said(folder, *args)["stores"] if row.pop("remarks") == []}
    return {name: row for name, row in rows.items() if row != {"moved": 0, "same": 0, "left": []}}


def on_a_terminal(folder, *args):
    leader, follower = pty.openpty()
    with start("--config", "onetool.yaml", *args, cwd=folder, stdin=follower, stdout=follower, stderr=follower) as one:
        os.close(follower)
        shown = b""
        try:
            while more := os.read(leader, 65536):
                shown += more
        except OSError:  # it has ended
            pass
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", shown.decode()).replace("\r\n", "\n"), one.returncode


def fill(folder, times):
    """Store that many results in a folder's state.db."""
    database = SqliteDatabase(folder / "state.db")
    sql = "INSERT INTO results VALUES (%s, '', NULL, '', 1, 1, 1, %s, 0, NULL, %s, NULL)"
    database.write(lambda work: work.execute_many(sql, [(f"key {one}", False, b"x") for one in range(times)]))
    database.close()


# Tables


def test_init_makes_the_tables_once(folder):
    before = said(folder)
    assert (before["reachable"], before["tables"], before["stores"]) == (True, 0, None)
    assert "stats" in before["missing"]
    first, second = said(folder, "init"), said(folder, "init")
    assert first["done"] == before["missing"]
    assert (second["done"], second["server"], second["tables"]) == ([], first["server"], first["tables"])
    assert re.fullmatch(r"\d+(\.\d+)*", first["server"])
    after = said(folder)
    assert (after["missing"], after["tables"], after["stores"]["journal"]) == ([], first["tables"], 0)
    assert first["tables"] >= 10


def test_migrate_says_what_it_did_and_when_there_was_nothing(folder):
    assert "stats" in said(folder, "migrate")["done"]
    assert said(folder, "migrate") == {"done": []}
    shown, code = on_a_terminal(folder, "db", "migrate")
    assert (shown.strip(), code) == ("Nothing to do: all migrations have been applied.", 0)


@contextmanager
def heartbeat(database_url, id):
    """Renew a replica's row as the replica does, so that it is alive however long a command takes."""
    over = Event()

    def beat():
        with psycopg.connect(database_url, autocommit=True) as connection:
            while True:
                connection.execute("UPDATE replicas SET seen_at = extract(epoch from now()) WHERE id = %s", (id,))
                if over.wait(0.2):
                    return

    with ThreadPoolExecutor() as pool:
        beating = pool.submit(beat)
        try:
            yield
        finally:
            over.set()
            beating.result()


def test_rows_that_no_replica_has_written_are_not_shown(folder, database_url):
    said(folder, "init")
    with psycopg.connect(database_url) as connection:
        sql = "INSERT INTO replicas VALUES (%s, 'a:1', '0', %s::float8, extract(epoch from now()) + 4, false, '', '')"
        for id, since in (("odd", "NaN"), ("far", "Infinity"), ("good", "0")):
            connection.execute(sql, (id, since))
    with heartbeat(database_url, "good"):
        assert [one["id"] for one in said(folder)["replicas"]] == ["good"]


def test_a_person_sees_tables_and_replicas(folder, database_url):
    shown, code = on_a_terminal(folder, "db", "init")
    assert (code, "Created: documents" in shown, "tables of OneTool" in shown) == (0, True, True)
    with psycopg.connect(database_url) as connection:
        sql = (
            "INSERT INTO replicas VALUES (%s, 'web-1:8765', '0.1.0', 0, extract(epoch from now()) + %s, false, '', '')"
        )
        connection.execute(sql, ("alive", 4))
        connection.execute(sql, ("gone", -60))
    with heartbeat(database_url, "alive"):
        for command in (["db"], ["check"]):
            shown, code = on_a_terminal(folder, *command)
            assert code == 0
            assert "1 replica" in shown
            assert re.search(r"alive +web-1:8765 +0\.1\.0 +1970-01-01T00:00:00Z", shown)
            assert "gone" not in shown
        assert "Database: PostgreSQL" in shown
        assert [one["id"] for one in said(folder)["replicas"]] == ["alive"]


# state.db


def test_a_fresh_home_stays_empty(tmp_path):
    folder = configured(tmp_path / "home", None)
    for args in ((), ("migrate",)):
        found = said(folder, *args)
        assert (found["file"], found["exists"], found["bytes"]) == (str(folder / "state.db"), False, 0)
    assert os.listdir(folder) == ["onetool.yaml"]


def test_the_state_of_a_file(tmp_path):
    folder = configured(tmp_path / "home", None)
    assert said(folder, "init")["exists"]
    fill(folder, 3)
    found = said(folder)
    assert (found["exists"], found["stores"]["results"], found["bytes"] > 0) == (True, 3, True)
    assert found["schema"] == NEWEST
    shown, code = on_a_terminal(folder, "db")
    assert code == 0
    assert re.search(rf"schema +{NEWEST} ", shown)
    assert re.search(r"results +3 ", shown)


def newer(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


def linked(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def writable(file):
    file.chmod(0o666)


BROKEN = {
    newer: "was changed by a later version of OneTool (schema 99; this version knows",
    linked: "a symbolic link; refusing to use it",
    writable: "other users can write to it",
}


@pytest.mark.attack("state")
@pytest.mark.parametrize("breaks", BROKEN, ids=lambda one: one.__name__)
def test_a_file_that_can_not_be_used_is_told_with_what_to_do(tmp_path, breaks):
    folder = configured(tmp_path / "home", None)
    fill(folder, 1)
    breaks(folder / "state.db")
    for command in (("db",), ("db", "init"), ("serve", "--port", "0"), ("check",)):
        done = invoke("--config", "onetool.yaml", *command, cwd=folder)
        assert (done.returncode > 0, BROKEN[breaks] in done.stdout + done.stderr) == (True, True)
        assert "Traceback" not in done.stderr
    assert "Traceback" not in invoke("--config", "onetool.yaml", "tools", "list", cwd=folder).stderr


def test_a_damaged_file_is_restored_by_a_command(tmp_path):
    folder = configured(tmp_path / "home", None)
    fill(folder, 1000)
    assert "is not damaged" in db(folder, "restore").stderr
    with closing(SqliteDatabase(folder / "state.db")) as database:
        database.shrink()
        [(root,)] = database.read(
            lambda work: work.execute("SELECT rootpage FROM sqlite_master WHERE name = 'results'")
        )
    with open(folder / "state.db", "r+b") as stream:
        stream.seek((root - 1) * 4096 + 8)  # the root's last child, in SQLite's format
        leaf = int.from_bytes(stream.read(4), "big")
        stream.seek((leaf - 1) * 4096)
        stream.write(bytes(4096))
    damaged = (folder / "state.db").read_bytes()
    for command in (("db", "migrate"), ("check",)):
        done = invoke("--config", "onetool.yaml", *command, cwd=folder)
        assert "Traceback" not in done.stderr
    done = json.loads(db(folder, "restore", "--json").stdout)
    kept = Path(done["kept"])
    assert re.fullmatch(r"state\.db\.damaged-\d{8}-\d{6}", kept.name)
    assert kept.read_bytes() == damaged
    [results] = [one for one in done["kinds"] if one["kind"] == "results"]
    assert (results["saved"] + results["lost"], 0 < results["saved"] < 1000) == (1000, True)
    assert said(folder)["stores"]["results"] == results["saved"]
    shown, code = on_a_terminal(folder, "db", "restore", "--empty")
    assert (code, "The damaged file is kept as" in shown, "Nothing was saved" in shown) == (0, True, True)
    assert not said(folder)["exists"]
    assert kept.read_bytes() == damaged


def test_of_a_file_that_is_no_database_nothing_is_restored(tmp_path):
    folder = configured(tmp_path / "home", None)
    (folder / "state.db").write_bytes(b"no database" * 1000)
    (folder / "state.db").chmod(0o600)
    for command in (("db",), ("serve", "--port", "0"), ("check",)):
        done = invoke("--config", "onetool.yaml", *command, cwd=folder)
        told = done.stdout + done.stderr
        assert (done.returncode, "state.db is damaged" in told, "onetool db restore" in told) == (1, True, True)
    shown, code = on_a_terminal(folder, "db", "restore")
    assert (code, "Nothing of it can be read" in shown) == (0, True)
    assert said(folder)["stores"]["results"] == 0


def test_a_newer_postgresql_is_refused(folder, database_url):
    said(folder, "init")
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO onetool_migrations VALUES (99, 'of tomorrow', 0)")
    for command in (("db",), ("tokens", "list"), ("check",)):
        done = invoke("--config", "onetool.yaml", *command, cwd=folder)
        assert (done.returncode, "a later version of OneTool (schema 99" in done.stdout + done.stderr) == (1, True)


def test_a_backup_while_it_is_used_and_its_way_back(tmp_path):
    folder = configured(tmp_path / "home", None)
    fill(folder, 3)
    using = SqliteDatabase(folder / "state.db")
    using.write(lambda work: work.execute("DELETE FROM results WHERE handle = 'key 0'"))
    assert moved(folder, "export", str(tmp_path / "back")) == {"results": {"moved": 2, "same": 0, "left": []}}
    using.close()
    (folder / "state.db").unlink()
    assert moved(folder, "import", str(tmp_path / "back")) == {"results": {"moved": 2, "same": 0, "left": []}}
    assert said(folder)["stores"]["results"] == 2


def test_a_copy_of_the_file_is_a_backup_under_any_name(tmp_path):
    folder, other = configured(tmp_path / "home", None), configured(tmp_path / "other", None)
    fill(folder, 3)
    assert tokens(folder, "add", "ci").returncode == 0
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    done = moved(other, "import", str(tmp_path / "copy.db"))
    assert (done["results"]["moved"], done["tokens"]["moved"]) == (3, 1)
    assert [row["name"] for row in json.loads(tokens(other, "list").stdout)] == ["ci"]
    assert (other / ".has-tokens").exists()
    refused = db(folder, "import", str(folder / "state.db"))
    assert (refused.returncode, "This config already uses" in refused.stderr) == (1, True)


@pytest.mark.attack("state")
def test_a_database_of_another_program_is_not_changed(tmp_path):
    folder, file = configured(tmp_path / "home", None), tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE places (name text)")
    before = file.read_bytes()
    refused = db(folder, "import", str(file))
    assert (refused.returncode, "is not a state.db of OneTool" in refused.stderr) == (1, True)
    assert (file.read_bytes(), list(tmp_path.glob("other.db?*"))) == (before, [])


ENDLESS = """WITH RECURSIVE endless(at) AS (SELECT 1.0 UNION ALL SELECT at + 1 FROM endless)
SELECT at, '' AS client, 1.0 AS duration_ms, '' AS caller FROM endless"""


@pytest.mark.attack("state")
@pytest.mark.parametrize(
    "evil",
    [
        f"DROP TABLE stats_gaps; CREATE VIEW stats_gaps AS {ENDLESS}",
        "PRAGMA user_version = 0; CREATE TRIGGER t AFTER INSERT ON onetool_migrations BEGIN DELETE FROM counters; END",
    ],
)
def test_a_backup_runs_no_code_of_its_own(tmp_path, evil):
    folder, file = configured(tmp_path / "home", None), tmp_path / "backup.db"
    with closing(SqliteDatabase(file)) as database:
        database.write(lambda work: None)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(evil)
    refused = db(folder, "import", str(file))
    assert (refused.returncode, "is not a state.db of OneTool" in refused.stderr) == (1, True)


def tokens(folder, *args):
    return invoke("--config", str(folder / "onetool.yaml"), "tokens", *args, cwd=folder)


def test_tokens_are_counted_one_by_one(tmp_path):
    folder = configured(tmp_path / "home", None)
    for name in ("ada", "bob", "eve"):
        tokens(folder, "add", name)
    tokens(folder, "revoke", "eve")
    stores = said(folder)["stores"]
    assert (stores["tokens"], stores["revoked_tokens"], stores["logins"], stores["pins"]) == (2, 1, 0, 0)
    with closing(sqlite3.connect(folder / "state.db")) as connection, connection:
        connection.execute("UPDATE documents SET body = x'00' WHERE kind = 'tokens'")
    assert said(folder)["stores"]["tokens"] is None
    shown, code = on_a_terminal(folder, "db")
    assert (code, re.search(r"tokens +can't be read", shown) is not None) == (0, True)


def test_another_key_of_the_audit_log_is_a_remark_and_no_failure(tmp_path):
    """So a script sees exit code 0: nothing is missing."""
    homes = [configured(tmp_path / name, None) for name in ("home", "other")]
    for folder in homes:
        (folder / "onetool.yaml").write_text("{}\n")
        assert tokens(folder, "add", folder.name).returncode == 0
    done = db(homes[0], "import", str(homes[1]))
    assert done.returncode == 0, done.stdout
    (audit,) = [row for row in json.loads(done.stdout)["stores"] if row["store"] == "journal"]
    assert (audit["left"], "keeps its own key" in audit["remarks"][0]) == ([], True)


def test_refused_copies_are_in_the_audit_log(tmp_path):
    folder = configured(tmp_path / "home", None)
    (folder / "onetool.yaml").write_text("{}\n")
    (tmp_path / "nothing").mkdir()
    db(folder, "import", str(tmp_path / "nothing"))
    db(folder, "export", str(folder))
    lines = invoke("--config", "onetool.yaml", "audit", "--json", cwd=folder).stdout.splitlines()
    found = [(json.loads(line)["what"], json.loads(line)["outcome"]) for line in lines]
    assert found == [("db import", "error"), ("db export", "error")]


def test_a_damaged_backup_stays_as_it_is(tmp_path):
    folder, backup = configured(tmp_path / "home", None), tmp_path / "back"
    backup.mkdir(mode=0o700)
    (backup / "state.db").write_bytes(b"not a database" * 100)
    (backup / "state.db").chmod(0o600)
    for _ in range(2):
        done = db(folder, "import", str(backup))
        assert (done.returncode, "is damaged" in done.stderr) == (1, True), done.stderr
    assert os.listdir(backup) == ["state.db"]


def test_all_lines_of_an_exported_audit_log_are_printed(tmp_path):
    folder = configured(tmp_path / "home", None)
    config = ("--config", str(folder / "onetool.yaml"))
    (folder / "onetool.yaml").write_text("{}\n")
    for name in ("ada", "bob"):
        assert invoke(*config, "tokens", "add", name, cwd=folder).returncode == 0
    before = invoke(*config, "audit", "--json", cwd=folder).stdout.splitlines()
    moved(folder, "export", str(tmp_path / "back"))
    copied = invoke("audit", "--json", cwd=tmp_path, env={**os.environ, "ONETOOL_HOME": str(tmp_path / "back")})
    assert len(before) == 2
    assert copied.stdout.splitlines()[:2] == before


# Copies


def test_a_home_goes_into_the_database_and_back(folder, tmp_path):
    fill(folder, 3)
    assert moved(folder, "import") == {"results": {"moved": 3, "same": 0, "left": []}}
    assert moved(folder, "import") == {"results": {"moved": 0, "same": 3, "left": []}}
    assert said(folder)["stores"]["results"] == 3
    back = tmp_path / "back"
    assert moved(folder, "export", str(back)) == {"results": {"moved": 3, "same": 0, "left": []}}
    assert sorted(one.name for one in back.iterdir()) == [".gitignore", MARKER, "state.db"]
    if os.name == "posix":
        assert {one.stat().st_mode & 0o777 for one in (back / "state.db", back / MARKER)} == {0o600}
    other = configured(tmp_path / "other", None)
    assert moved(other, "import", str(back))["results"]["moved"] == 3


def test_an_export_says_that_logins_in_it_are_readable(folder, tmp_path):
    said(folder, "init")
    shown, code = on_a_terminal(folder, "db", "export", str(tmp_path / "back"))
    assert (code, "Logins, keys and sessions in the copy are readable" in shown) == (0, True)


def test_what_differs_is_listed_and_the_exit_code_says_so(folder, database_url):
    fill(folder, 2)
    said(folder, "import")
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE results SET text = 'other' WHERE handle = 'key 1'")
    done = db(folder, "import")
    assert done.returncode == 1
    (row,) = [row for row in json.loads(done.stdout)["stores"] if row["left"]]
    assert (row["same"], row["left"][0]["what"], row["left"][0]["is_conflict"]) == (1, "results key 1", True)
    shown, code = on_a_terminal(folder, "db", "import")
    assert (code, "left: results key 1" in shown, "--force replaces them" in shown) == (1, True, True)
    assert moved(folder, "import", "--force")["results"] == {"moved": 1, "same": 1, "left": []}


HOSTILE = {  # a statement, and what is left of it
    "INSERT INTO ask_sessions VALUES ('', 's', 'now', NULL)": "ask_sessions /s",
    "INSERT INTO ask_sessions VALUES ('', 's', 1.0, NULL);"
    "INSERT INTO ask_messages VALUES ('', 's', 0, 'user', 'text')": "ask_sessions /s",
    "INSERT INTO results VALUES ('k', '', NULL, '', 'huge', 1, 1, 0, 'now', NULL, 'text', NULL)": "results k",
    "INSERT INTO documents VALUES ('tokens', 'tokens', 'text', 1, 1.0)": "tokens/tokens in ",
}


@pytest.mark.attack("state")
@pytest.mark.parametrize("sql", HOSTILE)
def test_rows_of_other_types_are_left_and_nothing_fails_because_of_them(tmp_path, sql):
    folder, hostile = configured(tmp_path / "home", None), configured(tmp_path / "hostile", None)
    db(hostile, "init")
    with closing(sqlite3.connect(hostile / "state.db")) as connection:
        connection.executescript(sql)
    imported = db(folder, "import", str(hostile), "--json")
    assert imported.returncode == 1, imported.stderr
    [left] = [one for store in json.loads(imported.stdout)["stores"] for one in store["left"]]
    assert left["what"].startswith(HOSTILE[sql])
    assert left["why"] == "it is damaged"
    assert invoke("sessions", "list", cwd=folder, env={"ONETOOL_HOME": str(folder)}).returncode == 0


def test_an_import_needs_somewhere_to_copy_from(folder, tmp_path):
    (tmp_path / "nothing").mkdir()
    refused = db(folder, "import", str(tmp_path / "nothing"))
    assert (refused.returncode, "contains neither state.db nor bundles" in refused.stderr) == (1, True)
    refused = db(configured(tmp_path / "alone", None), "import")
    assert (refused.returncode, "Name another folder" in refused.stderr) == (1, True)


def test_an_export_needs_an_empty_folder_and_tables(folder, tmp_path):
    refused = db(folder, "export", str(tmp_path / "new"))
    assert (refused.returncode, "the database has no tables: run `onetool db init`" in refused.stderr) == (1, True)
    said(folder, "init")
    refused = db(folder, "export", str(folder), "--inside-roots")
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)
    assert not (folder / MARKER).exists()


@pytest.mark.attack("state")
@pytest.mark.parametrize("target", ["backup", "a/backup", ".", "../home/backup", "link/backup"])
def test_an_export_below_the_roots_needs_a_flag(folder, target):
    (folder / "link").symlink_to(folder)
    refused = db(folder, "export", target)
    assert (refused.returncode, "--inside-roots" in refused.stderr) == (1, True)
    assert not (folder / target / MARKER).exists()


@pytest.mark.attack("state")
def test_the_config_of_a_server_with_a_database_is_closed_to_others(folder, tmp_path):
    said(folder, "init")
    assert invoke("--config", "onetool.yaml", "bundles", "list", cwd=folder).returncode == 0
    assert not [path for path in folder.iterdir() if path.name not in ("onetool.yaml", "database")]
    done = invoke("tools", "invoke", "fs.read_file", f"path={folder.name}/onetool.yaml", cwd=tmp_path)
    assert "belongs to OneTool" in done.stdout + done.stderr


@pytest.mark.attack("state")
def test_an_export_is_closed_to_tools(folder):
    fill(folder, 1)
    said(folder, "import")
    said(folder, "export", "backup", "--inside-roots")
    (folder / "b.txt").write_text("fine")
    command = ("--config", "onetool.yaml", "tools", "invoke", "fs.read_file")
    assert "fine" in invoke(*command, "path=b.txt", cwd=folder).stdout
    for closed in ("backup/state.db", f"backup/{MARKER}", "backup/none"):
        done = invoke(*command, f"path={closed}", cwd=folder)
        assert MARKER in done.stdout + done.stderr


def test_progress_is_for_a_terminal(folder):
    fill(folder, 3)
    shown, code = on_a_terminal(folder, "db", "import")
    assert (code, "3/3 results" in shown, "already there" in shown) == (0, True, True)
    assert db(folder, "import").stderr == ""


# What goes wrong


def refused(tmp_path, url, *parts, command="init", code=1, env=None):
    """One message without a traceback and the password; of the state, as JSON, too."""
    folder = tmp_path / "wrong"
    if not folder.exists():
        configured(folder, url)
    done = db(folder, command, env=env)
    assert done.returncode == code
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    return done.stderr


def test_without_psycopg(tmp_path):
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    folder = configured(tmp_path / "home", "postgresql://x:hunter2@127.0.0.1/x")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = cli("--config", "onetool.yaml", "db", "init", cwd=folder, env={"PYTHONPATH": path}, cold=True)
    assert done.returncode == 2
    assert "psycopg" in done.stderr
    assert "pip install 'psycopg[binary,pool]'" in done.stderr
    assert "hunter2" not in done.stderr


def lets_in(url):
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_wrong_password(tmp_path, postgres):
    hba = postgres._folder / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE sam LOGIN PASSWORD 'right'")
        hba.write_text(f"host all sam 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        try:
            address = f"127.0.0.1:{postgres.port}/postgres"
            until(lambda: not lets_in(f"postgresql://sam:hunter2@{address}"))  # the file is read in its own time
            refused(
                tmp_path, f"postgresql://sam:hunter2@{address}", "can't be reached", "Check the user and the password"
            )
        finally:
            hba.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE sam")


def test_a_host_that_nobody_knows(tmp_path):
    refused(tmp_path, "postgresql://x:hunter2@no-such-host.invalid/x", "can't be reached", "Check the host")


def test_nobody_listens(tmp_path):
    refused(tmp_path, "postgresql://x:hunter2@127.0.0.1:1/x", "can't be reached", "whether PostgreSQL runs there")


def test_no_such_database_and_no_such_role(tmp_path, postgres):
    address = f"127.0.0.1:{postgres.port}"
    refused(tmp_path, f"postgresql://postgres:hunter2@{address}/nothing", '"nothing" does not exist', "createdb")
    (tmp_path / "wrong" / "onetool.yaml").write_text(f"database: postgresql://nobody:hunter2@{address}/postgres\n")
    refused(tmp_path, None, '"nobody" does not exist', "CREATE ROLE")


@pytest.mark.parametrize("url", ["mysql://x:hunter2@host/x", "postgresql://x:hunter2%zz@host/x"])
def test_an_address_that_is_none(tmp_path, url):
    refused(tmp_path, url, "onetool.yaml", "database", "postgresql://", code=2)


def test_a_role_that_may_not_make_tables(tmp_path, postgres, database_url):
    (schema,) = re.findall(r"test_\d+_\d+", database_url)
    limited = database_url.replace("postgres@", "limited:hunter2@")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE limited LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO limited")
        try:
            refused(tmp_path, limited, "permission denied for schema", "GRANT USAGE, CREATE ON SCHEMA")
            assert db(configured(tmp_path / "owner", database_url), "init").returncode == 0
            refused(tmp_path, limited, "permission denied", command="import")
            for what in ("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "USAGE ON ALL SEQUENCES"):
                connection.execute(f"GRANT {what} IN SCHEMA {schema} TO limited")
            folder = tmp_path / "wrong"
            fill(folder, 2)
            assert said(folder, "init")["done"] == []
            assert moved(folder, "import")["results"]["moved"] == 2
        finally:
            connection.execute("DROP OWNED BY limited")
            connection.execute("DROP ROLE limited")


def test_the_state_of_one_that_is_away(tmp_path):
    folder = configured(tmp_path / "home", "postgresql://x:hunter2@127.0.0.1:1/x")
    done = db(folder)
    found = json.loads(done.stdout)
    assert (done.returncode, found["reachable"]) == (1, False)
    assert "Connection refused" in found["problem"]
    assert "hunter2" not in done.stdout + done.stderr
    done = invoke("--config", "onetool.yaml", "check", cwd=folder)
    (mistake,) = [one for one in json.loads(done.stdout) if one["key"] == "database"]
    assert (done.returncode, mistake["severity"]) == (1, "error")
    assert "hunter2" not in done.stdout + done.stderr


def test_tables_without_the_key_of_the_cluster(tmp_path, database_url):
    """What is there stays encrypted for this machine alone: one is told."""
    folder = configured(tmp_path / "home", database_url)
    cluster = {"key": "${CLUSTER_KEY}"}
    text = json.dumps({"audit": "none", "database": database_url, "cluster": cluster})
    (folder / "onetool.yaml").write_text(text)
    told = said(folder, "init")["warning"]
    assert told.startswith("not encrypted for other replicas: cluster.key is not set here (${CLUSTER_KEY}); set it")
    shown, _ = on_a_terminal(folder, "db", "init")
    assert "Not encrypted for other replicas" in shown
    done = db(folder, "init", env={"CLUSTER_KEY": "k" * 32})
    assert "warning" not in json.loads(done.stdout)


def test_an_export_beside_a_replica_that_runs(folder, database, tmp_path):
    from onetool.cluster import ClusterSettings
    from onetool.cluster.members import Members

    said(folder, "init")
    assert "running" not in db(folder, "export", str(tmp_path / "one")).stderr
    member = Members(ClusterSettings("a:1", b"k", database))
    member.start()
    try:
        done = db(folder, "export", str(tmp_path / "two"))
    finally:
        member.close()
    assert "warning: 1 replica is running: a change made now may not be in the export" in done.stderr
    assert done.returncode == 0


def test_a_list_of_tokens_without_the_database_speaks_of_no_change(tmp_path):
    folder = configured(tmp_path / "home", "postgresql://onetool:hidden@127.0.0.1:1/onetool")
    done = invoke("--config", "onetool.yaml", "tokens", "list", cwd=folder)
    assert done.returncode == 1
    assert "Error: the database can't be reached." in done.stderr
    assert "nothing has changed" not in done.stderr
