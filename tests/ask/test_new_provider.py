"""Adding a model provider is adding one module to `onetool.ask.providers`: everything else learns its name from it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from ask.stand_in import StandIn
from helpers import cli, trusted
from interfaces.rest.served import Api

import onetool

KEY = "sk-acme-0123456789"
ACME = """
from onetool.ask.providers.openai import OpenAI

class Acme(OpenAI):
    name = "acme"
    base_url = "{url}"
    model = "rocket-1"
    rank = 0

ADAPTER = Acme()
"""


@pytest.fixture(scope="module")
def model():
    with StandIn() as model:
        yield model


@pytest.fixture(scope="module")
def env(model, tmp_path_factory):
    """Return the environment of an installed OneTool that has one more file."""
    place = tmp_path_factory.mktemp("installed")
    shutil.copytree(Path(onetool.__file__).parent, place / "onetool", copy_function=os.symlink)
    (place / "onetool" / "ask" / "providers" / "acme.py").write_text(ACME.format(url=model.urls["openai"]))
    return {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.long
def test_its_key_is_kept_and_sent_to_it(tmp_path, env, model):
    done = cli("auth", "set", "acme", cwd=tmp_path, stdin=KEY, env=env)
    assert (done.returncode, "ACME_API_KEY is stored in" in done.stderr) == (0, True), done.stderr
    rows = json.loads(cli("auth", "list", cwd=tmp_path, env=env).stdout)
    assert [row["source"] for row in rows if row["provider"] == "acme"] == ["file"]
    model.will("Up it goes.")
    for options in ([], ["--provider", "acme"]):  # its rank is the first of those that have a key
        answer = cli("ask", *options, "Where to?", cwd=tmp_path, env=env)
        assert answer.stdout == "Up it goes.\n", answer.stderr
        assert model.seen[-1].headers["authorization"] == f"Bearer {KEY}"
        assert model.seen[-1].model == "rocket-1"


@pytest.mark.attack("secrets")
def test_its_key_is_for_no_server_of_a_project(tmp_path, env):
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text(
        "servers: {x: {command: cat, env: {A: '${ACME_API_KEY}', B: '${OTHER_KEY}'}}}\n"
    )
    trusted(tmp_path)
    keys = {"ACME_API_KEY": KEY, "OTHER_KEY": KEY}
    told = cli("check", cwd=tmp_path, env=env | keys)
    assert "the secret ACME_API_KEY is not set" in told.stdout + told.stderr
    assert "the secret OTHER_KEY is not set" not in told.stdout + told.stderr


@pytest.mark.long
def test_the_command_line_knows_it(tmp_path, env):
    assert "acme" in cli("ask", "--help", cwd=tmp_path, env=env).stdout
    assert "acme" in cli("auth", "--help", cwd=tmp_path, env=env).stdout
    assert "acme" in cli("tools", "export", "--help", cwd=tmp_path, env=env).stdout
    for words in ("onetool ask --provider ac", "onetool tools export --provider ac"):
        completing = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_ONETOOL_COMPLETE": "bash_complete"}
        assert "acme" in cli(cwd=tmp_path, env=env | completing).stdout
    exported = json.loads(cli("tools", "export", "--provider", "acme", cwd=tmp_path, env=env).stdout)
    assert "time__now" in [tool["function"]["name"] for tool in exported]


def test_the_config_takes_it(tmp_path, env):
    (tmp_path / "onetool.yaml").write_text("ask: {provider: acme}\n")
    done = cli("--config", "onetool.yaml", "check", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cli("--config", "onetool.yaml", "check", cwd=tmp_path).returncode != 0  # without that file


@pytest.mark.long
def test_rest_takes_and_describes_it(tmp_path, env, model):
    api = Api(real=tmp_path, env=env | {"ACME_API_KEY": KEY})
    try:
        question = api.get("/openapi.json").json()["components"]["schemas"]["Question"]
        assert "acme" in json.dumps(question["properties"]["provider"])
        providers = {one["id"]: one for one in api.get("/ask/models").json()["providers"]}
        assert providers["acme"] == {"id": "acme", "models": ["rocket-1"], "isConfigured": True}
        model.will("Up it goes.")
        answer = api.ask("POST", "/ask", {"prompt": "Where to?", "provider": "acme"})
        assert (answer.status_code, answer.json().get("answer")) == (200, "Up it goes."), answer.text
    finally:
        api.stop()
