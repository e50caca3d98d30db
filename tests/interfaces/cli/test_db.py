"""`onetool db`: tables, moving a home into the database and back, and what is said when the database can't be used."""

import json
import os
import pty
import re
import time
from hashlib import sha256

import psycopg
import pytest
from helpers import cli, start, until

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.state_folders import MARKER
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.services.stats import UsageStats

NOW = time.time()


@pytest.fixture
def folder(tmp_path, database_url):
    """A folder with a config that is named; its state lies beside it."""
    return configured(tmp_path / "home", database_url)


def configured(folder, url):
    folder.mkdir()
    (folder / "onetool.yaml").write_text(json.dumps({"audit": "none", **({"database": url} if url else {})}))
    return folder


def db(folder, *args, **more):
    return cli("--config", str(folder / "onetool.yaml"), "db", *args, cwd=folder, **more)


def said(folder, *args):
    done = db(folder, *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def moved(folder, *args):
    """What was done with each store that has anything."""
    rows = {row.pop("store"): row for row in said(folder, *args)["stores"]}
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


def count(place, times):
    stats = UsageStats(place)
    for _ in range(times):
        stats.record(CallEvent(call=ToolCall("1", "a.b"), duration_ms=1.0))
    stats.flush()


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
    assert (after["missing"], after["tables"], after["stores"]["stats"]) == ([], first["tables"], 0)
    assert first["tables"] >= 10


def test_migrate_says_what_it_did_and_when_there_was_nothing(folder):
    assert "stats" in said(folder, "migrate")["done"]
    assert said(folder, "migrate") == {"done": []}
    shown, code = on_a_terminal(folder, "db", "migrate")
    assert (shown.strip(), code) == ("Nothing to do: no migration is missing.", 0)


def test_rows_that_no_replica_has_written_are_not_shown(folder, database_url):
    said(folder, "init")
    with psycopg.connect(database_url) as connection:
        sql = "INSERT INTO replicas VALUES (%s, 'a:1', '0', %s::float8, extract(epoch from now()) + 4, false)"
        for id, since in (("odd", "NaN"), ("far", "Infinity"), ("good", "0")):
            connection.execute(sql, (id, since))
    assert [one["id"] for one in said(folder)["replicas"]] == ["good"]


def test_a_person_sees_tables_and_replicas(folder, database_url):
    shown, code = on_a_terminal(folder, "db", "init")
    assert (code, "Made: documents" in shown, "tables of OneTool" in shown) == (0, True, True)
    with psycopg.connect(database_url) as connection:
        sql = "INSERT INTO replicas VALUES (%s, '10.0.0.7:8765', '0.1.0', 0, extract(epoch from now()) + %s, false)"
        connection.execute(sql, ("alive", 4))
        connection.execute(sql, ("gone", -60))
    for command in (["db"], ["check"]):
        with psycopg.connect(database_url) as connection:  # what a heartbeat does
            connection.execute("UPDATE replicas SET seen_at = extract(epoch from now()) + 4 WHERE id = 'alive'")
        shown, code = on_a_terminal(folder, *command)
        assert code == 0
        assert "1 replica" in shown
        assert re.search(r"alive +10\.0\.0\.7:8765 +0\.1\.0 +1970-01-01T00:00:00Z", shown)
        assert "gone" not in shown
    assert "Database: PostgreSQL" in shown
    assert [one["id"] for one in said(folder)["replicas"]] == ["alive"]


# Moving


def test_a_home_goes_into_the_database_and_back(folder, tmp_path):
    count(folder / "stats.db", 3)
    assert moved(folder, "import") == {"stats": {"moved": 3, "same": 0, "left": []}}
    assert moved(folder, "import") == {"stats": {"moved": 0, "same": 3, "left": []}}
    assert said(folder)["stores"]["stats"] == 3
    assert (folder / "stats.db").exists()
    (folder / "stats.db").unlink()
    command = ("--config", "onetool.yaml", "stats", "--json")
    assert json.loads(cli(*command, cwd=folder).stdout)["total_calls"] == 3
    assert not (folder / "stats.db").exists()
    back = tmp_path / "back"
    assert moved(folder, "export", str(back)) == {"stats": {"moved": 3, "same": 0, "left": []}}
    assert sorted(one.name for one in back.iterdir()) == [".gitignore", MARKER, "stats.db"]
    (back / "onetool.yaml").write_text("menu: run\n")
    assert json.loads(cli(*command, cwd=back).stdout)["total_calls"] == 3


def test_what_is_left_is_listed_with_its_reason_and_the_exit_code_says_so(folder):
    (folder / "stats.db").write_bytes(b"no database" * 100)
    done = db(folder, "import")
    assert done.returncode == 1
    (row,) = [row for row in json.loads(done.stdout)["stores"] if row["left"]]
    assert row["left"][0]["what"] == str(folder / "stats.db")
    shown, code = on_a_terminal(folder, "db", "import")
    assert (code, "left: " in shown, "it can't be read" in shown) == (1, True, True)


def test_state_that_no_store_stands_for_is_not_passed_over(folder, monkeypatch):
    from onetool.app import database_move
    from onetool.config.file_checks import STATE

    moved = {file for store in database_move.STORES for file in store.files}
    unmoved = [name for name in STATE if "/" not in name and name not in moved]
    for name in unmoved:
        (folder / name).mkdir()
    done = db(folder, "import")
    rows = {row["store"]: row["left"] for row in json.loads(done.stdout)["stores"]}
    assert done.returncode == bool(unmoved)
    for name in unmoved:
        assert rows[name][0]["what"] == str(folder / name)


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
    assert cli("--config", "onetool.yaml", "bundles", "list", cwd=folder).returncode == 0
    assert not [path for path in folder.iterdir() if path.name not in ("onetool.yaml", "database")]
    done = cli("tools", "invoke", "fs.read_file", f"path={folder.name}/onetool.yaml", cwd=tmp_path)
    assert "OneTool's own" in done.stdout + done.stderr


@pytest.mark.attack("state")
def test_an_export_is_closed_to_tools(folder):
    LoginSessions(folder / "page_sessions").start(sha256(b"sesame").digest())
    said(folder, "import")
    said(folder, "export", "backup", "--inside-roots")
    path = "backup/page_sessions/sessions.json"
    assert (folder / path).exists()
    (folder / "b.txt").write_text("fine")
    command = ("--config", "onetool.yaml", "tools", "invoke", "fs.read_file")
    assert "fine" in cli(*command, "path=b.txt", cwd=folder).stdout
    for closed in (path, "backup/stats.db", f"backup/{MARKER}", "backup/page_sessions/none"):
        done = cli(*command, f"path={closed}", cwd=folder)
        assert MARKER in done.stdout + done.stderr
    (folder / "backup" / "page_sessions").rename(folder / "moved")
    done = cli(*command, "path=moved/sessions.json", cwd=folder)
    assert MARKER in done.stdout + done.stderr


def test_progress_is_for_a_terminal(folder):
    count(folder / "stats.db", 3)
    shown, code = on_a_terminal(folder, "db", "import")
    assert (code, "3/3 stats" in shown, "there before" in shown) == (0, True, True)
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


@pytest.mark.parametrize("command", ["init", "migrate", "import"])
def test_without_a_database_in_the_config(tmp_path, command):
    refused(tmp_path, None, "no database", "files below", "database: ${DATABASE_URL}", command=command)


def test_without_psycopg(tmp_path):
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    folder = configured(tmp_path / "home", "postgresql://x:hunter2@127.0.0.1/x")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = db(folder, "init", env={"PYTHONPATH": path}, cold=True)
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
            count(folder / "stats.db", 2)
            assert said(folder, "init")["done"] == []
            assert moved(folder, "import")["stats"]["moved"] == 2
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
    done = cli("--config", "onetool.yaml", "check", cwd=folder)
    (mistake,) = [one for one in json.loads(done.stdout) if one["key"] == "database"]
    assert (done.returncode, mistake["severity"]) == (1, "error")
    assert "hunter2" not in done.stdout + done.stderr


def test_tables_without_the_key_of_the_cluster(tmp_path, database_url):
    """What is there stays encrypted for this machine alone: one is told."""
    folder = configured(tmp_path / "home", database_url)
    cluster = {"address": "${REPLICA_ADDRESS}", "key": "${CLUSTER_KEY}"}
    text = json.dumps({"audit": "none", "database": database_url, "cluster": cluster})
    (folder / "onetool.yaml").write_text(text)
    told = said(folder, "init")["warning"]
    assert told.startswith("not encrypted for other replicas: cluster.key is not set here (${CLUSTER_KEY}); set it")
    shown, _ = on_a_terminal(folder, "db", "init")
    assert "Not encrypted for other replicas" in shown
    done = db(folder, "init", env={"CLUSTER_KEY": "k" * 32})
    assert "warning" not in json.loads(done.stdout)


def test_an_export_beside_a_replica_that_runs(folder, database, tmp_path):
    from onetool.services.cluster import ClusterSettings
    from onetool.services.cluster.members import Members

    said(folder, "init")
    assert "running" not in db(folder, "export", str(tmp_path / "one")).stderr
    member = Members(ClusterSettings("a:1", b"k", database))
    member.start()
    try:
        done = db(folder, "export", str(tmp_path / "two"))
    finally:
        member.close()
    assert "warning: 1 replica is running: what it changes now is not in the export" in done.stderr
    assert done.returncode == 0


def test_a_list_of_tokens_without_the_database_speaks_of_no_change(tmp_path):
    folder = configured(tmp_path / "home", "postgresql://onetool:hidden@127.0.0.1:1/onetool")
    done = cli("--config", "onetool.yaml", "tokens", "list", cwd=folder)
    assert done.returncode == 1
    assert "Error: the database can't be reached: `onetool db` says why" in done.stderr
    assert "nothing has changed" not in done.stderr
