"""`onetool api`: every route from a shell, in this process or through a server that runs."""

import json

import pytest
from helpers import invoke
from interfaces.rest.served import Api

TOKEN = "sesame-token-0123456789"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    return tmp_path


def api(folder, *args, **more):
    return invoke("--config", str(folder / "onetool.yaml"), "api", *args, cwd=folder, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "onetool.yaml").write_text(json.dumps({"http": {"token": TOKEN}}))
    running = Api(real=folder, env={"ONETOOL_CONFIG": str(folder / "onetool.yaml")})
    yield running
    running.stop()


def test_values_are_the_query_or_the_body(folder):
    found = json.loads(api(folder, "GET", "tools/tools", "fields=slug", "recommendedPageSize=1").stdout)
    assert [list(tool) for tool in found["tools"]] == [["slug"]]
    assert json.loads(api(folder, "POST", "call/tools.echo", "message=a=b").stdout) == "a=b"
    run = json.loads(api(folder, "post", "/run", "code=a + b", 'variables:={"a": 1, "b": 2}').stdout)
    assert run["value"] == 3
    piped = api(folder, "POST", "run", "-", stdin='{"code": "40 + 2"}')
    assert json.loads(piped.stdout)["value"] == 42


def test_the_user_of_the_machine_may_use_every_route(folder):
    assert json.loads(api(folder, "POST", "tokens", "name=ci").stdout)["entry"]["name"] == "ci"
    assert api(folder, "DELETE", "tokens/ci").returncode == 0
    assert json.loads(api(folder, "GET", "tokens").stdout)["tokens"][0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("GET", "stats", "days=x"), 1, "days is wrong: expected a whole number"),
        (("GET", "nowhere"), 1, "Unknown path '/nowhere'; all paths are in /openapi.json"),
        (("POST", "call/tools.echo", "mesage=x"), 1, "mesage"),
        (("POST", "run", "code"), 2, "is not KEY=VALUE"),
        (("POST", "run", "variables:={"), 2, "is not JSON"),
        (("GET", "stats", "--server", "ftp://x"), 2, "--server"),
        (("GET", "stats", "--server", "http://127.0.0.1:1"), 1, "can't be reached"),
    ],
)
def test_what_is_wrong_is_told(folder, args, code, words):
    done = api(folder, *args)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_runs_answers(folder, server):
    env = {"ONETOOL_TOKEN": TOKEN}
    done = api(folder, "POST", "call/tools.echo", "message=hi", "--server", server.url, env=env)
    assert json.loads(done.stdout) == "hi"
    refused = api(folder, "GET", "stats", "--server", server.url)
    assert (refused.returncode, json.loads(refused.stdout)["status"]) == (1, 401)


def test_completion_knows_routes_and_their_fields(folder):
    for words, expected in (
        ("api GET sta", {"stats"}),
        ("api DELETE /tok", {"/tokens/{token}"}),
        ("api GET stats da", {"days="}),
        ("api POST run co", {"code="}),
    ):
        line = f"onetool {words}"
        env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        offered = {one.partition(",")[2] for one in invoke(cwd=folder, env=env).stdout.splitlines()}
        assert expected <= offered, offered
