"""What other programs do to `state.db` while a server runs: nobody gets in by it, and nothing needs a restart."""

import json
import os
import shutil
import sqlite3

import pytest
from helpers import NOBODY, cli, until
from interfaces.http.test_named_tokens import asked, tokens

from onetool.database.sqlite import SqliteDatabase

posix = pytest.mark.skipif(os.name != "posix", reason="modes and owners")
pytestmark = pytest.mark.attack("state")
NO_TOKEN = "no token except http.token is accepted: {}/state.db is damaged: "


@pytest.fixture
def home(tmp_path):
    return tmp_path / "server-0" / "home"


@pytest.fixture
def server(serve, home):
    """A server that has its state open, with a token of the name `ci`."""
    running = serve(config={})
    running.token = tokens(running, "add", "ci")
    assert status(running) == 200
    return running


def status(server):
    return asked(server, "/tools/tools", server.token).status


def command(server, *args):
    env = {"ONETOOL_HOME": str(server.folder / "home")}
    return cli("--config", str(server.folder / "onetool.yaml"), *args, cwd=server.folder, env=env)


def ready(server):
    answer = asked(server, "/readyz")
    return answer.status, answer.json["status"]


def delete_log(home):
    (home / "state.db-wal").unlink()
    (home / "state.db-shm").unlink()


def checkpoint(home):
    database = SqliteDatabase(home / "state.db")
    database.shrink()
    database.close()


def test_a_revocation_counts_after_the_log_was_deleted(server, home):
    checkpoint(home)
    delete_log(home)
    tokens(server, "revoke", "ci")
    assert status(server) == 401
    other = tokens(server, "add", "other")
    assert asked(server, "/tools/tools", other).status == 200


def test_the_deleted_log_is_not_written_over_what_came_later(server, home):
    """The server has written to the log that was deleted, and the command has written to the file since."""
    checkpoint(home)
    for _ in range(20):
        asked(server, "/call/time.now", server.token, "POST")
    delete_log(home)
    tokens(server, "revoke", "ci")
    assert status(server) == 401
    server.stop()
    assert "revoked" in command(server, "tokens", "list", "--all").stdout + command(server, "tokens", "list").stdout
    with sqlite3.connect(home / "state.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


@pytest.mark.parametrize("loss", ["deleted", "emptied"])
def test_after_a_loss_the_server_is_closed_until_it_has_tokens_again(server, home, loss):
    checkpoint(home)
    shutil.copy2(home / "state.db", home / "backup.db")
    if loss == "deleted":
        (home / "state.db").unlink()
    else:
        os.truncate(home / "state.db", 0)
    assert status(server) in (401, 503)
    assert status(server) == 401
    assert asked(server, "/tools/tools").status == 401
    assert ready(server) == (503, "closed")
    assert "the stored tokens are lost" in command(server, "check").stdout
    assert server.log_file.read_text().count("the stored tokens are lost") == 1
    new = tokens(server, "add", "new")
    assert asked(server, "/tools/tools", new).status == 200
    assert ready(server) == (200, "ready")
    os.replace(home / "backup.db", home / "state.db")
    assert status(server) == 200


@pytest.mark.parametrize("pages", [slice(0, 1), slice(4, 44)], ids=["header", "middle"])
def test_a_file_that_is_damaged_meanwhile_closes_the_server_until_it_is_restored(server, home, serve, pages):
    checkpoint(home)
    with open(home / "state.db", "r+b") as stream:
        stream.seek(pages.start * 4096)
        stream.write(os.urandom((pages.stop - pages.start) * 4096))
    damaged = (home / "state.db").stat().st_ino
    until(lambda: status(server) in (401, 503))  # what was known counts until the damaged part is read
    for token in (server.token, None):
        assert asked(server, "/tools/tools", token).status in (401, 503)
    assert ready(server) == (503, "closed")
    assert server.log_file.read_text().count(NO_TOKEN.format(home)) == 1
    server.stop()
    assert ((home / "state.db").stat().st_ino, [*home.glob("state.db.damaged-*")]) == (damaged, [])
    restored = json.loads(command(server, "db", "restore").stdout)["kinds"]
    again = serve(config={}, env={"ONETOOL_HOME": str(home)})
    if any(one["kind"] == "tokens" and one["saved"] for one in restored):
        assert (asked(again, "/tools/tools", server.token).status, ready(again)) == (200, (200, "ready"))
    else:
        check_closed_until_a_token(again, server)


def test_no_server_starts_with_a_damaged_file(server, home, serve):
    server.stop()
    (home / "state.db").write_bytes(b"no database" * 1000)
    told = command(server, "serve", "--port", "0")
    [error] = [line for line in told.stderr.splitlines() if line.startswith("Error: ")]
    assert (told.returncode, f"{home}/state.db is damaged" in error, "`onetool db restore`" in error) == (1, True, True)
    assert command(server, "db", "restore").returncode == 0
    again = serve(config={}, env={"ONETOOL_HOME": str(home)})
    check_closed_until_a_token(again, server)
    assert again.log_file.read_text().count("the stored tokens are lost") == 1


def check_closed_until_a_token(again, before):
    """`again` has the state of `before`, whose token is lost."""
    assert ready(again) == (503, "closed")
    for token in (before.token, None):
        assert asked(again, "/tools/tools", token).status == 401
    new = tokens(before, "add", "new")
    assert (asked(again, "/tools/tools", new).status, ready(again)) == (200, (200, "ready"))


@pytest.mark.parametrize("name", ["state.db", "state.db-wal"])
@pytest.mark.parametrize("change", ["mode", "owner"])
@posix
def test_a_file_that_others_could_have_written_meanwhile_counts_no_more(server, home, name, change):
    file = home / name
    session = signed_in(server)
    assert asked(server, "/tools/tools", session).status == 200
    before = file.stat()
    if change == "mode":
        file.chmod(0o666)
    elif os.geteuid() != 0:
        pytest.skip("only root can give files away")
    else:
        os.chown(file, NOBODY, -1)
    for shown in (server.token, session, None):
        assert asked(server, "/tools/tools", shown).status in (401, 503)
        assert asked(server, "/call/time.now", shown, "POST").status in (401, 503)
    assert "is not used: " in server.log_file.read_text()
    os.chown(file, before.st_uid, before.st_gid)
    file.chmod(0o600)
    assert status(server) == 200


def signed_in(server):
    done = server.ask("/login", "POST", [], json.dumps({"token": server.token}).encode())
    return done.json["session"]


def test_a_file_that_another_process_locks_for_itself(serve, home):
    server = serve(config={})
    home.mkdir(mode=0o700, exist_ok=True)
    database = SqliteDatabase(home / "other.db")
    database.write(lambda work: None)
    database.close()
    other = sqlite3.connect(home / "other.db", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    (home / "other.db").rename(home / "state.db")  # else the server would have it open first
    assert asked(server, "/tools/tools").status == 200  # nobody could have stored a token meanwhile
    told = command(server, "tokens", "list")
    assert (told.returncode, "is locked by another process" in told.stderr) == (1, True), told
    other.close()
    server.token = tokens(server, "add", "ci")
    assert status(server) == 200


SMALL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (550_000, 550_000))
from onetool.interfaces.cli import main
main()
"""


LARGE = "'-'.join([str(number * 7919 % 1000003) for number in range(148_000)])"  # also if it is compressed


@posix
def test_callers_read_of_a_full_disk_but_not_where_it_is(serve, home):
    server = serve(config={}, command=["-c", SMALL_DISK])
    token = tokens(server, "add", "ci")
    headers, code = [("Authorization", f"Bearer {token}")], json.dumps({"code": LARGE}).encode()
    answers = [
        server.ask("/run", "POST", headers, code),
        server.ask("/call/ot.result", "POST", headers, json.dumps({"handle": "0" * 32}).encode()),
        server.ask("/results", "GET", headers),
        server.ask("/tools/stats", "GET", headers),
    ]
    said = "".join(answer.body.decode() for answer in answers)
    assert "state.db can't be used: disk I/O error (fix: check the disk)" in said
    assert str(home) not in said
    assert f"{home}/state.db can't be used: disk I/O error" in server.log_file.read_text()
