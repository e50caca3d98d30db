"""`onetool tokens`: a token is shown once, kept as a hash, and revoked at once, also one of the config."""

import asyncio
import json
import re
import stat
import subprocess
import sys
import time

import pytest
from document_stores import in_home, stored_tokens
from helpers import cli, invoke, trusted, until
from interfaces.http.conftest import Served
from mcp import Client
from mcp.types import Implementation
from services.journals import lines_in

from onetool.app.access import open_token_store
from onetool.config import load_config
from onetool.config.find import find
from onetool.core.principal import Rate
from onetool.services.access_tokens import token_digest, token_hash

CI = """http:
  tokens:
    - {{name: ci, hash: "{}", role: edit, tools: [time.*], expires: 2020-01-01}}
    - {{name: bo, hash: "{}"}}
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a config that is named; its state lies beside it."""
    (tmp_path / "onetool.yaml").write_text("menu: run\n")
    return tmp_path


def tokens(folder, *args, **more):
    return invoke("--config", str(folder / "onetool.yaml"), "tokens", *args, cwd=folder, **more)


def stored(folder):
    return stored_tokens(folder)


def listed(folder):
    return json.loads(tokens(folder, "list").stdout)


def test_the_token_alone_is_on_standard_output_and_its_hash_is_stored(folder):
    done = tokens(folder, "add", "ci", "--role", "edit", "--tools", "time.*, web.get", "--rate", "600/min")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ot_[A-Za-z0-9_-]{43}\n", done.stdout)
    token = stored(folder).find(token_digest(done.stdout.strip()))
    assert (token.name, token.role, token.tools, token.rate) == ("ci", "edit", ("time.*", "web.get"), Rate(600, 60))
    assert token.expires is None
    assert done.stdout.strip() not in done.stderr
    assert done.stdout.strip().encode() not in (folder / "state.db").read_bytes()
    for part in ("not shown again", "accept it at once", "Authorization: Bearer $ONETOOL_TOKEN", ":8765/mcp", "--port"):
        assert part in done.stderr
    assert "change bundles" in done.stderr


async def _call_as(url, name):
    """Call a tool as an MCP client of this name does."""
    async with Client(f"{url}/mcp", client_info=Implementation(name=name, version="1")) as client:
        assert not (await client.call_tool("run", {"code": "time.now()"})).is_error


def test_the_first_token_says_who_will_be_refused(tmp_path):
    server = Served(tmp_path, "--port", "0", config={"menu": "run"}, env={"ONETOOL_HOME": ""}, real=True)
    try:
        url = f"http://127.0.0.1:{server.port}"
        for name in ("claude-code", "cursor\x1b[31m"):
            asyncio.run(_call_as(url, name))
        until(lambda: {line.get("client", "") for line in lines_in(tmp_path)} >= {"claude-code"})
        assert server.ask("/call/time.now", "POST").status == 200
    finally:
        server.stop()
    first = tokens(tmp_path, "add", "ci").stderr
    assert first.startswith(f"This is the first token. Servers that use {tmp_path} refuse clients without a token")
    named = next(line for line in first.splitlines() if line.startswith("Clients that called without a token"))
    assert "claude-code" in named
    assert "clients without a name" in named
    assert "\x1b" not in first
    assert "set http.local to call or edit" in first
    assert "first token" not in tokens(tmp_path, "add", "other").stderr


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "http: {local: call}",
            "Clients on this machine may continue without a token, with the role call (http.local).",
        ),
        ("audit: none", "The clients that called without a token are unknown: the config says audit: none."),
    ],
)
def test_the_first_token_says_what_the_config_changes(folder, config, said):
    (folder / "onetool.yaml").write_text(config)
    assert said in tokens(folder, "add", "ci").stderr


def test_what_is_done_is_in_the_audit_log(folder):
    text = tokens(folder, "add", "ci").stdout.strip()
    tokens(folder, "revoke", "ci")
    found = lines_in(folder)
    assert [line["what"] for line in found] == ["tokens add ci", "tokens revoke ci"]
    assert text not in json.dumps(found)


def test_a_token_that_could_not_be_stored_is_no_success_in_the_audit_log(folder):
    in_home(folder, "tokens")._database.lock("tokens/tokens")._path.mkdir()
    assert tokens(folder, "add", "ci").returncode != 0
    assert [line["outcome"] for line in lines_in(folder)] == ["error"]


def test_what_was_refused_is_in_the_audit_log(folder):
    tokens(folder, "add", "ci")
    for args in (["add", "ci"], ["revoke", "other"], ["add", "--print", "third"]):
        tokens(folder, *args)
    found = [(line["what"], line["outcome"]) for line in lines_in(folder)]
    assert found == [("tokens add ci", "ok"), ("tokens add ci", "error"), ("tokens revoke other", "error")]


def test_a_damaged_database_is_told_with_the_command_that_mends_it(folder):
    tokens(folder, "add", "ci")
    (folder / "state.db").write_bytes(b"garbage" * 1000)
    done = tokens(folder, "list")
    assert (done.returncode, "onetool db restore" in done.stderr) == (1, True)


def test_lost_tokens_are_told_until_there_are_new_ones(folder):
    tokens(folder, "add", "ci")
    (folder / "state.db").unlink()
    for args in (["tokens", "list"], ["db"], ["check"]):
        done = cli("--config", "onetool.yaml", *args, cwd=folder)
        assert "the stored tokens are lost" in done.stdout + done.stderr, args
        assert "onetool db import FILE" in done.stdout + done.stderr, args
    tokens(folder, "add", "new")
    for args in (["tokens", "list"], ["db"], ["check"]):
        done = cli("--config", "onetool.yaml", *args, cwd=folder)
        assert not any(word in done.stdout + done.stderr for word in ("lost:", "damaged or deleted")), done


def test_as_json(folder):
    added = json.loads(tokens(folder, "add", "ci", "--expires", "2099-01-01", "--json").stdout)
    assert stored(folder).find(token_digest(added["token"]))
    assert {key: added[key] for key in ("name", "role", "tools", "rate", "expires", "where", "state")} == {
        "name": "ci",
        "role": "call",
        "tools": None,
        "rate": None,
        "expires": "2099-01-01T00:00:00Z",
        "where": "stored",
        "state": "valid",
    }
    assert [row["name"] for row in listed(folder)] == ["ci"]
    assert "sha256" not in json.dumps(listed(folder))


def test_tools_may_be_given_several_times(folder):
    assert tokens(folder, "add", "ci", "--tools", "time.now,fs.*", "--tools", "tools.echo").returncode == 0
    assert stored(folder).named("ci").tools == ("time.now", "fs.*", "tools.echo")
    names = invoke("tools", "list", "--json", "--tool-allow", "time.now", "--tool-allow", "tools.echo", cwd=folder)
    assert [tool["name"] for tool in json.loads(names.stdout)] == ["time.now", "tools.echo"]


@pytest.mark.parametrize(("text", "seconds"), [("30d", 30 * 86400), ("12h", 12 * 3600), ("4w", 28 * 86400)])
def test_it_may_end_after_a_while(folder, text, seconds):
    before = time.time()
    assert tokens(folder, "add", "ci", "--expires", text).returncode == 0
    assert before + seconds - 60 <= stored(folder).named("ci").expires <= time.time() + seconds + 60


def test_print_stores_nothing_and_its_line_is_for_the_config(folder):
    options = ("--tools", "time.*,*", "--rate", "10/s", "--expires", "2099-01-01T12:00:00Z", "--role", "admin")
    done = tokens(folder, "add", "on", "--print", *options)
    text, line = done.stdout.splitlines()
    assert not (folder / "state.db").exists()
    assert "Nothing was stored" in done.stderr
    assert "everything except create tokens" in done.stderr
    (folder / "onetool.yaml").write_text(f"http:\n  tokens:\n{line}\n")
    (token,) = load_config(folder / "onetool.yaml").http.tokens
    assert (token.name, token.hash, token.tools) == ("on", token_hash(text), ("time.*", "*"))
    assert (token.role, token.rate, token.expires) == ("admin", "10/s", "2099-01-01T12:00:00Z")


def test_mistakes_are_told_before_anything_is_stored(folder):
    for args, words in (
        (["a|b"], "is not a name"),
        (["ci", "--rate", "many"], "600/min"),
        (["ci", "--expires", "soon"], "2027-01-01"),
        (["ci", "--role", "root"], "'admin', 'call', 'edit'"),
        (["ci", "--tools", " , "], "Must not be empty"),
        (["ci", "--tools", "a b"], "is neither a tool name"),
    ):
        done = tokens(folder, "add", *args)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not (folder / "state.db").exists()


def test_what_matches_nothing_or_has_expired_is_told(folder):
    done = tokens(folder, "add", "ci", "--tools", "tiem.*,time.*", "--expires", "2020-01-01")
    assert done.returncode == 0
    assert "--tools matches no tool: tiem.*; did you mean time.*?" in done.stderr
    assert "matches no tool: time.*" not in done.stderr
    assert "has already expired" in done.stderr
    assert listed(folder)[0]["state"] == "expired"


def test_revoked_and_then_the_name_is_for_the_same_holder(folder):
    text = tokens(folder, "add", "ci").stdout.strip()
    taken = tokens(folder, "add", "ci")
    assert (taken.returncode, "onetool tokens revoke ci" in taken.stderr, taken.stdout) == (1, True, "")
    assert "did you mean ci" in tokens(folder, "revoke", "cii").stderr
    done = tokens(folder, "revoke", "ci")
    assert (done.returncode, "also in running servers" in done.stderr) == (0, True)
    assert "refuses requests without one" in done.stderr
    assert token_digest(text) in stored(folder).view().revoked
    assert [(row["name"], row["state"]) for row in listed(folder)] == [("ci", "revoked")]
    assert "already revoked" in tokens(folder, "revoke", "ci").stderr
    for options in ((), ("--print",)):
        again = tokens(folder, "add", "ci", *options)
        assert (again.returncode, again.stdout) == (1, "")
        assert "a token called ci was revoked on 20" in again.stderr
        assert "results, sessions and examples" in again.stderr
        assert "--again" in again.stderr
    assert tokens(folder, "add", "other").returncode == 0
    new = tokens(folder, "add", "ci", "--again")
    assert (new.returncode, bool(stored(folder).find(token_digest(new.stdout.strip())))) == (0, True)
    missing = tokens(folder, "revoke", "nobody")
    assert (missing.returncode, "No token is called nobody" in missing.stderr) == (1, True)


def test_tokens_of_the_config_are_listed_with_their_lines_and_can_be_revoked(folder):
    (folder / "onetool.yaml").write_text(CI.format(token_hash("x"), token_hash("y")))
    assert [(row["name"], row["where"], row["state"]) for row in listed(folder)] == [
        ("ci", "onetool.yaml:3", "expired"),
        ("bo", "onetool.yaml:4", "valid"),
    ]
    taken = tokens(folder, "add", "bo")
    assert (taken.returncode, "onetool.yaml:4" in taken.stderr) == (1, True)
    assert "in place of onetool.yaml:4" in tokens(folder, "add", "bo", "--print").stderr
    done = tokens(folder, "revoke", "bo")
    assert (done.returncode, "remove onetool.yaml:4" in done.stderr) == (0, True), done.stderr
    assert token_digest("y") in stored(folder).view().revoked
    assert token_digest("x") not in stored(folder).view().revoked
    assert listed(folder)[1]["state"] == "revoked"


def test_a_database_that_others_can_write_is_told(folder):
    tokens(folder, "add", "ci")
    (folder / "state.db").chmod(0o602)
    for args in (["list"], ["add", "x"], ["revoke", "ci"]):
        done = tokens(folder, *args)
        assert (done.returncode, "other users can write to it" in done.stderr) == (2, True)
        assert "chmod go-w" in done.stderr
        assert "trust --owner" not in done.stderr  # which would not help
        assert "Traceback" not in done.stderr


def test_a_folder_that_cant_be_written_is_told(folder):
    (folder / "state.db").mkdir()  # where the file would be
    done = tokens(folder, "add", "x")
    assert (done.returncode, "not a regular file" in done.stderr, done.stdout) == (1, True, "")


def test_two_processes_that_add_at_once_both_do(folder):
    command = [sys.executable, "-m", "onetool", "--config", str(folder / "onetool.yaml"), "tokens", "add"]
    added = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("a", "b")]
    texts = [process.communicate()[0].strip() for process in added]
    assert all(stored(folder).find(token_digest(text)) for text in texts)
    assert {token.name for token in stored(folder).list()} == {"a", "b"}


def test_nothing_of_a_database_that_comes_with_a_project_counts(tmp_path):
    project = tmp_path / "project"
    (project / ".onetool").mkdir(parents=True)
    (project / ".onetool" / "onetool.yaml").write_text("menu: run\n")
    trusted(project)
    evil = stored_tokens(project / ".onetool").add("evil", "admin")  # unsigned, as somebody else would make it
    refused = invoke("tokens", "list", cwd=project)
    assert refused.returncode == 1
    assert "was not written by this user's OneTool" in refused.stderr
    with open_token_store(load_config(find(cwd=project))) as store:
        assert (store.guards, store.find(token_digest(evil))) == (True, None)
    for file in (project / ".onetool").glob("state.db*"):
        file.unlink()
    done = invoke("tokens", "add", "ci", cwd=project)
    file = project / ".onetool" / "state.db"
    assert str(file) in done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    moved = project.rename(tmp_path / "moved")
    trusted(moved)
    assert [one["name"] for one in json.loads(invoke("tokens", "list", "--json", cwd=moved).stdout)] == ["ci"]


def test_a_copy_of_a_projects_database_is_a_backup_for_its_owner_alone(tmp_path):
    project = tmp_path / "project"
    (project / ".onetool").mkdir(parents=True)
    (project / ".onetool" / "onetool.yaml").write_text("menu: run\n")
    trusted(project)
    invoke("tokens", "add", "ci", cwd=project)
    for file in (project / ".onetool").glob("state.db*"):
        file.rename(tmp_path / file.name.replace("state", "copy"))
    assert invoke("db", "import", str(tmp_path / "copy.db"), cwd=project).returncode == 0
    assert [one["name"] for one in json.loads(invoke("tokens", "list", cwd=project).stdout)] == ["ci"]
    for file in (project / ".onetool").glob("state.db*"):
        file.unlink()
    other = {"HOME": str(tmp_path), "ONETOOL_CONFIG": str(project / ".onetool" / "onetool.yaml")}  # another key
    refused = invoke("db", "import", str(tmp_path / "copy.db"), cwd=project, env=other)
    assert (refused.returncode, "was not written by this user's OneTool" in refused.stdout) == (1, True)


def test_completion_knows_names_roles_and_patterns(folder):
    (folder / "onetool.yaml").write_text(CI.format(token_hash("x"), token_hash("y")))
    tokens(folder, "add", "citrus")
    begin = f"onetool --config {folder / 'onetool.yaml'} tokens"
    for words, expected in (
        ("revoke ci", {"ci", "citrus"}),
        ("add x --role a", {"admin"}),
        ("add x --tools time.now,fs.", {"time.now,fs.*", "time.now,fs.read_file"}),
    ):
        line = f"{begin} {words}"
        env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        offered = {one.partition(",")[2] for one in invoke(cwd=folder, env=env).stdout.splitlines()}
        assert expected <= offered
