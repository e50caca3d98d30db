"""`onetool tokens` and a server that runs: what the command says counts there with the next request."""

import pytest
from document_stores import in_home
from helpers import cli

CONFIG = {"http": {"access_log": True}}


@pytest.fixture
def server(serve):
    return serve(config=CONFIG)


def tokens(server, *args):
    env = {"ONETOOL_HOME": str(server.folder / "home")}
    done = cli("--config", str(server.folder / "onetool.yaml"), "tokens", *args, cwd=server.folder, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def asked(server, path, token=None, method="GET"):
    headers = [("Authorization", f"Bearer {token}")] if token else []
    return server.ask(path, method, headers, b"{}" if method == "POST" else b"")


def test_the_first_token_closes_the_door_and_revoking_it_opens_none(server):
    assert asked(server, "/tools/tools").status == 200
    token = tokens(server, "add", "ci")
    assert asked(server, "/tools/tools").status == 401
    assert asked(server, "/tools/tools", token).status == 200
    assert asked(server, "/tools/tools", token + "x").status == 401
    tokens(server, "revoke", "ci")
    gone = asked(server, "/tools/tools", token)
    assert (gone.status, "This token was revoked on 20" in gone.json["detail"]) == (401, True)
    assert "revoked" not in asked(server, "/tools/tools", token + "x").json["detail"]
    assert asked(server, "/tools/tools").status == 401
    assert token not in server.log_file.read_text()


def test_a_token_in_an_address_is_not_logged(server):
    token = tokens(server, "add", "ci")
    for path in (f"/{token}", f"/tools/tools?token={token}", f"/results/{token}"):
        asked(server, path, token)
    assert server.requests("GET /results/ot_***")[0]["path"] == "/ot_***"
    assert token not in server.log_file.read_text()


def test_a_token_calls_what_fits_its_patterns(server):
    token = tokens(server, "add", "ci", "--tools", "time.*")
    assert asked(server, "/call/time.now", token, "POST").status == 200
    assert asked(server, "/call/shell.pwd", token, "POST").status in (403, 404)
    everything = tokens(server, "add", "anna")
    assert asked(server, "/call/shell.pwd", everything, "POST").status == 200


def test_roles_and_expiry(server):
    caller, boss = tokens(server, "add", "ci"), tokens(server, "add", "boss", "--role", "admin")
    assert asked(server, "/servers/x/logs", caller).status == 403
    assert asked(server, "/servers/x/logs", boss).status == 404
    old = asked(server, "/tools/tools", tokens(server, "add", "old", "--expires", "2020-01-01"))
    assert (old.status, "This token expired on 2020-01-01." in old.json["detail"]) == (401, True)


def test_a_rate_is_kept(server):
    token = tokens(server, "add", "ci", "--rate", "2/h")
    assert [asked(server, "/tools/tools", token).status for _ in range(3)] == [200, 200, 429]
    late = asked(server, "/tools/tools", token)
    assert int(late.headers["retry-after"]) > 3000
    assert asked(server, "/tools/tools", tokens(server, "add", "other")).status == 200


def test_damaged_tokens_let_nobody_in_and_the_log_says_so(server):
    token = tokens(server, "add", "ci")
    in_home(server.folder / "home", "tokens").write("tokens", b"{")
    assert asked(server, "/tools/tools", token).status == 401
    assert asked(server, "/tools/tools").status == 401
    assert any("are damaged" in line["message"] for line in server.log("are damaged"))
