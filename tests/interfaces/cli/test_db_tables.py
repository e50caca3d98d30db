"""Who makes the tables of the database: `serve` and `db`, and nobody else. And what a machine that is not a
replica needs: neither the address of one nor, for most commands, the key.
"""

import json
import signal
import subprocess

import psycopg
import pytest
from helpers import check_each, invoke, start

NO_TABLES = "the database has no tables: run `onetool db init`"
KEY = "0123456789abcdef0123456789abcdef"
CLUSTER = {"key": "${CLUSTER_KEY}"}
READING = [
    ["tools", "list"],
    ["bundles", "list"],
    ["stats", "--json"],
    ["sessions", "list"],
    ["tokens", "list"],
    ["audit"],
    ["db"],
    ["run", "1 + 1"],
]


@pytest.fixture
def folder(tmp_path, database_url):
    return configured(tmp_path, database=database_url)


def configured(folder, **config):
    (folder / "onetool.yaml").write_text(json.dumps(config))
    return folder


def said(folder, *args, **more):
    return invoke("--config", str(folder / "onetool.yaml"), *args, cwd=folder, **more)


def tables(url):
    with psycopg.connect(url) as connection:
        sql = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"
        return connection.execute(sql).fetchone()[0]


def served(folder, *args):
    """What `onetool serve` writes until it listens, and is stopped then."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = ("--config", str(folder / "onetool.yaml"), "serve", "--port", "0", *args)
    with start(*command, cwd=folder, **pipes) as process:
        try:
            assert process.stdout.readline().startswith("OneTool listens on")
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
    return log


# Tables


def test_check_says_that_there_are_no_tables_and_makes_none(folder, database_url):
    done = said(folder, "check")
    (found,) = json.loads(done.stdout)
    assert (found["message"], found["key"], found["severity"]) == (NO_TABLES, "database", "warning")
    assert tables(database_url) == 0


def test_a_command_makes_no_tables(folder, database_url):
    def check(command):
        done = said(folder, *command)
        assert tables(database_url) == 0
        if command != ["db"]:
            assert NO_TABLES in done.stderr

    check_each([*READING, ["tokens", "add", "ci"], ["bundles", "create", "new"]], check)


def test_a_command_of_a_newer_version_changes_no_database_of_an_older_one(folder, database_url):
    assert said(folder, "db", "init").returncode == 0
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP TABLE mcp_sessions, mcp_tasks")
        connection.execute("DELETE FROM onetool_migrations WHERE name = 'mcp'")
    before = tables(database_url)
    assert (
        "the database lacks tables of this version (mcp): run `onetool db migrate`"
        in said(folder, "tokens", "list").stderr
    )
    (found,) = json.loads(said(folder, "check").stdout)
    assert (found["message"], found["hint"]) == ("tables are missing in the database: mcp", "onetool db migrate")
    assert tables(database_url) == before


@pytest.mark.long
@pytest.mark.parametrize("args", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_serve_makes_them_and_says_so_once(folder, database_url, args):
    log = served(folder, *args)
    assert log.count("created missing tables of the database: documents, bundles") == 1
    assert tables(database_url) > 10
    assert "created missing tables" not in served(folder, *args)


# A machine that is not a replica


@pytest.fixture
def team(tmp_path, database_url):
    configured(tmp_path, database=database_url, cluster=CLUSTER)
    assert said(tmp_path, "db", "init").returncode == 0
    return tmp_path


def test_a_command_needs_no_key(team):
    def check(command):
        done = said(team, *command)
        assert (done.returncode, "CLUSTER_KEY" in done.stderr) == (0, False)

    check_each([*READING, ["db", "import"], ["bundles", "create", "new"]], check)


def test_check_says_what_is_not_set_and_for_whom(team):
    done = said(team, "check")
    found = {one["key"]: (one["message"], one["hint"], one["severity"]) for one in json.loads(done.stdout)}
    key = found["cluster.key"]
    assert (key[0], key[2]) == ("CLUSTER_KEY is not set on this machine", "warning")
    assert done.returncode == 0


def test_tokens_are_encrypted_and_so_need_the_key(team):
    lacking = said(team, "tokens", "add", "ci")
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert "encrypted documents in the database need cluster.key" in lacking.stderr
    assert "CLUSTER_KEY is not set on this machine" in lacking.stderr
    made = said(team, "tokens", "add", "ci", env={"CLUSTER_KEY": KEY})
    assert made.returncode == 0, made.stderr
    listed = said(team, "tokens", "list")
    assert (listed.returncode, listed.stderr.count("CLUSTER_KEY is not set on this machine")) == (1, 1)


def test_serve_says_what_is_not_set_where_it_stands(team):
    done = said(team, "serve", "--port", "0")
    (key,) = done.stderr.splitlines()[1:]
    assert done.returncode == 2
    assert str(team / "onetool.yaml") in key
    assert "cluster.key: CLUSTER_KEY is not set on this machine" in key


def test_what_one_machine_has_encrypted_is_for_all_of_them_after_a_key_was_added(tmp_path, database_url):
    first, second = ({"HOME": str(tmp_path / name)} for name in ("first", "second"))
    for home in (first, second):
        (tmp_path / home["HOME"] / ".onetool").mkdir(parents=True)
    configured(tmp_path, database=database_url)
    assert json.loads(said(tmp_path, "db", "init", env=first).stdout)["sealed"] == 0
    assert said(tmp_path, "tokens", "add", "anna", env=first).returncode == 0
    configured(tmp_path, database=database_url, cluster=CLUSTER)
    first["CLUSTER_KEY"] = second["CLUSTER_KEY"] = KEY
    lacking = said(tmp_path, "tokens", "list", env=second)
    assert "run `onetool db init` with this config on the machine that wrote it" in lacking.stderr
    assert said(tmp_path, "db", "init", env=second).returncode != 0  # it can not read what the first one has written
    assert [json.loads(said(tmp_path, "db", "init", env=first).stdout)["sealed"] for _ in range(2)] == [1, 0]
    assert [one["name"] for one in json.loads(said(tmp_path, "tokens", "list", env=second).stdout)] == ["anna"]


# A project's folder that is not trusted


def test_in_a_folder_that_is_not_trusted_it_is_said_where_things_are_kept(tmp_path):
    own, project = tmp_path / "home", tmp_path / "home" / "project"
    (own / ".onetool").mkdir(parents=True)
    (project / ".onetool").mkdir(parents=True)
    configured(project / ".onetool", database="${DATABASE_URL}")
    there = {"cwd": project, "env": {"HOME": str(own), "ONETOOL_HOME": ""}}
    token = invoke("tokens", "add", "ci", **there)
    assert f"{project / '.onetool'} is not trusted" in token.stderr
    assert f"It is stored in {own / '.onetool' / 'state.db'}." in token.stderr
    not_here = f"and not for {project / '.onetool'}, which is not trusted"
    secret = invoke("auth", "set", "SOME_KEY", stdin="0123456789\n", **there)
    assert f"SOME_KEY is stored in {own / '.onetool' / 'secrets.yaml'}, {not_here}." in secret.stderr
    init = invoke("db", "init", **there)
    assert (init.returncode, "run onetool trust" in init.stderr) == (1, True)
    assert f"The config in {project / '.onetool'} is not used" in init.stderr
