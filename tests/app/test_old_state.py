"""State of the version before is taken over into `state.db`, once, and nothing that others could have written."""

import hmac
import json
import os
from hashlib import sha256

import msgspec
import pytest
from document_stores import in_home, stored_tokens
from helpers import cli, trusted
from sources.mcp_servers.harness import Harness, settle

from onetool import App
from onetool.app.access import open_token_store, token_store
from onetool.app.database import open_state
from onetool.config import load_config
from onetool.config.find import find, own_folder
from onetool.http.login import LoginStore, StoredLogin
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.services.access_tokens import MARKER, StoredToken, token_digest, token_hash
from onetool.sources.bundles.editing import OwnExamples
from onetool.sources.bundles.model import ToolExample
from onetool.sources.mcp_servers.server_cache import file_name

SHOWN, REVOKED = "ot_" + "a" * 43, "ot_" + "b" * 43
TOKENS = {
    "version": 1,
    "tokens": [msgspec.to_builtins(StoredToken(name="ci", hash=token_hash(SHOWN), role="edit"))],
    "revoked": {token_hash(REVOKED): {"name": "old", "at": 1.0}},
}
LOGIN = StoredLogin(url="https://vault.example.com", key="k", tokens={"access_token": "x"})


def write(home, name, data, mode=0o600):
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else msgspec.json.encode(data))
    file.chmod(mode)
    return file


def sealed(data, key):
    """As `onetool tokens` of the version before did in a project's folder."""
    body = json.dumps(data).encode()
    return hmac.digest(key, b"tokens of a project:" + body, sha256).hex().encode() + b"\n" + body


@pytest.fixture
def config(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    return load_config(tmp_path / "onetool.yaml")


def test_an_import_says_that_old_files_are_not_copied_and_how_to_take_them_over(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    home, target = tmp_path / "old", {"ONETOOL_HOME": str(tmp_path / "new")}
    file = write(home, "access_tokens/tokens.json", TOKENS)
    first = cli("db", "import", str(home), cwd=tmp_path, env=target)
    [left] = [one for store in json.loads(first.stdout)["stores"] for one in store["left"]]
    assert (first.returncode, left["what"], file.exists()) == (1, str(file), True)
    assert f"ONETOOL_HOME={home} onetool db" in left["why"]
    assert cli("db", cwd=tmp_path, env={"ONETOOL_HOME": str(home)}).returncode == 0
    assert cli("db", "import", str(home), cwd=tmp_path, env=target).returncode == 0
    assert "ci" in cli("tokens", "list", cwd=tmp_path, env=target).stdout


def test_all_kinds_are_taken_over_and_the_files_set_aside(config, tmp_path):
    from hashlib import blake2b

    write(tmp_path, "access_tokens/tokens.json", TOKENS)
    write(tmp_path, "page_sessions/sessions.json", {"key": "A" * 43 + "="})
    write(tmp_path, "servers/vault.auth.json", LOGIN)
    owner = blake2b(b"ada", digest_size=16, person=b"own examples").hexdigest()
    write(tmp_path, f"own_examples/{owner}.json", {"t1": [{"name": "hi", "args": {}}]})
    (tmp_path / "servers" / "vault.log").write_text("stays\n")
    with open_token_store(config) as store:
        assert (store.find(token_digest(SHOWN)).role, token_digest(REVOKED) in store.view().revoked) == ("edit", True)
    assert LoginStore(in_home(tmp_path, "logins"), "vault", LOGIN.url, LOGIN.key).load()[1] == LOGIN
    assert LoginSessions(in_home(tmp_path, "page_sessions"))._shared().key == bytes(32)
    assert OwnExamples(in_home(tmp_path, "own_examples")).of("ada", "t1") == (ToolExample(name="hi", args={}),)
    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json*")}
    assert left == {
        "access_tokens/tokens.json.before-state-db",
        "page_sessions/sessions.json.before-state-db",
        "servers/vault.auth.json.before-state-db",
        f"own_examples/{owner}.json.before-state-db",
    }
    assert (tmp_path / MARKER).exists()
    assert (tmp_path / "servers" / "vault.log").read_text() == "stays\n"


def test_what_was_approved_is_taken_over(tmp_path):
    harness = Harness(tmp_path)
    block = {"one": harness.nasty("ok", pin=True)}
    with harness.app(block) as app:
        settle(app)
        known = app.servers.proxy("one").cached
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    write(tmp_path, f"servers/{file_name('one')}.json", msgspec.structs.replace(known, approved={}))
    with harness.app(block) as app:
        settle(app)
        assert app.servers.proxy("one").is_refused  # nothing was approved, and so it waits
        assert app.servers.proxy("one").cached.tools == known.tools


def test_it_happens_once_and_brings_nothing_back(config, tmp_path):
    file = write(tmp_path, "access_tokens/tokens.json", TOKENS)
    with open_token_store(config) as store:
        store.revoke("ci")
        added = store.add("new")
    write(tmp_path, "access_tokens/tokens.json", {**TOKENS, "revoked": {token_hash(added): {"name": "new", "at": 2.0}}})
    with open_token_store(config) as store:  # as after a version before was used again
        assert (store.find(token_digest(SHOWN)), store.find(token_digest(added))) == (None, None)
        assert token_digest(SHOWN) in store.view().revoked
        assert token_digest(added) in store.view().revoked
    assert not file.exists()


REFUSED = {
    "open": ("other users can read or write it", lambda file: file.chmod(0o644)),
    "link": ("it is a link", lambda file: (file.rename(file.with_name("real")), file.symlink_to("real"))),
    "pipe": ("it is not a regular file", lambda file: (file.unlink(), os.mkfifo(file, 0o600))),
    "damaged": ("it is damaged", lambda file: file.write_bytes(b"{")),
    "large": ("more than", lambda file: file.write_bytes(b" " * (4 * 1024**2 + 1))),
    "sealed by somebody": ("was not written by this user", lambda file: file.write_bytes(sealed(TOKENS, b"x" * 32))),
}


@pytest.mark.parametrize("how", REFUSED)
def test_tokens_that_are_not_taken_over_keep_the_server_closed(config, tmp_path, how, caplog):
    file = write(tmp_path, "access_tokens/tokens.json", TOKENS)
    write(tmp_path, "servers/vault.auth.json", LOGIN)
    why, spoil = REFUSED[how]
    spoil(file)
    for _ in range(2):  # and so it stays
        with open_token_store(config) as store:
            assert (store.find(token_digest(SHOWN)), store.guards) == (None, True)
            assert why in store.problem
            with pytest.raises(Exception, match="was not imported"):
                store.add("x")
    assert why in caplog.text
    assert os.path.lexists(file)
    assert in_home(tmp_path, "logins").keys() == ["vault"]  # the others are


def test_a_name_that_no_text_can_hold_keeps_nothing_else_back(config, tmp_path, caplog):
    write(tmp_path, "access_tokens/tokens.json", TOKENS)
    write(tmp_path, os.fsdecode(b"own_examples/\xff.json"), b"{}")
    with open_token_store(config) as store:
        assert store.find(token_digest(SHOWN))
    assert "was not imported" in caplog.text


def test_where_nothing_can_be_written_the_server_stays_closed(config, tmp_path, caplog, monkeypatch):
    file = write(tmp_path, "access_tokens/tokens.json", TOKENS)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("onetool.app.old_state._store", full)
        with open_state(config) as database:
            assert database.has_lost
            store = token_store(config, in_home(tmp_path, "tokens"))
            assert (store.find(token_digest(SHOWN)), store.guards) == (None, True)
    assert "No space left on device" in caplog.text
    assert file.exists()
    with open_token_store(config) as store:  # the next start
        assert store.find(token_digest(SHOWN)).name == "ci"


def test_tokens_of_a_project_count_with_the_seal_of_this_person(tmp_path, own_home):
    project = tmp_path / "project"
    write(project, ".onetool/onetool.yaml", b"menu: run\n")
    trusted(project)
    key = write(own_folder(), "tokens.key", os.urandom(32)).read_bytes()
    file = write(project, ".onetool/access_tokens/tokens.json", TOKENS)
    config = load_config(find(cwd=project))
    with open_token_store(config) as store:  # it came with the project
        assert (store.find(token_digest(SHOWN)), "was not written by this user" in store.problem) == (None, True)
    file.write_bytes(sealed(TOKENS, key))
    with open_token_store(config) as store:
        assert store.find(token_digest(SHOWN)).name == "ci"


def test_tokens_of_before_there_was_a_database_close_a_server_and_let_nobody_in(config, tmp_path):
    shared = msgspec.structs.replace(config, database="postgresql://x")
    documents = in_home(tmp_path / "elsewhere", "tokens")
    assert not token_store(shared, documents).guards
    file = write(tmp_path, "access_tokens/tokens.json", TOKENS)
    assert (token_store(shared, documents).guards, token_store(shared, documents).find(token_digest(SHOWN))) == (
        True,
        None,
    )
    file.unlink()
    stored_tokens(tmp_path).add("ci")  # in state.db
    assert token_store(shared, documents).guards


def test_two_processes_that_start_at_once_take_over_once(config, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    write(tmp_path, "access_tokens/tokens.json", TOKENS)
    command = ("tokens", "list", "--json", "--config", str(tmp_path / "onetool.yaml"))
    with ThreadPoolExecutor(3) as pool:
        done = [one.result() for one in [pool.submit(cli, *command, cwd=tmp_path) for _ in range(3)]]
    assert [[row["name"] for row in json.loads(one.stdout)] for one in done] == [["ci", "old"]] * 3


def test_a_damaged_database_lets_pinned_servers_wait(tmp_path):
    harness = Harness(tmp_path)
    blocks = {"one": harness.nasty("ok", pin=True), "two": harness.nasty("ok")}
    with harness.app(blocks) as app:
        settle(app)
        assert not app.servers.proxy("one").is_refused
    for file in tmp_path.glob("state.db-*"):
        file.unlink()
    (tmp_path / "state.db").write_bytes(b"garbage" * 1000)
    with App.open(harness.config(blocks)) as app:
        settle(app)
        assert [app.servers.proxy(name).is_refused for name in ("one", "two")] == [True, False]
        app.servers.approve("one")
        assert not app.servers.proxy("one").is_refused
    with harness.app(blocks) as app:
        settle(app)
        assert not app.servers.proxy("one").is_refused


def test_a_home_without_old_files_stays_empty(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    home = {"ONETOOL_HOME": str(tmp_path / "home")}
    assert cli("tools", "list", "--config", str(tmp_path / "onetool.yaml"), cwd=tmp_path, env=home).returncode == 0
    assert not (tmp_path / "home").exists()
