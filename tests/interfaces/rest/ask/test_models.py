"""GET /ask/models, and files in a question for each provider."""

import asyncio
import json
from base64 import b64encode

import jsonschema_rs
import pytest
from ask.harness import KEY, Harness
from interfaces.rest.ask.asgi_client import person

from onetool.ask.providers import adapter
from onetool.core.model_providers import PROVIDER_KEYS, PROVIDERS, key_name
from onetool.interfaces.rest.ask_body import MAX_FILE_BYTES
from onetool.interfaces.rest.openapi import openapi_document

CLAUDE = adapter("anthropic").model
PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(100))).decode()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch, tmp_path):
    for name in PROVIDER_KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("HOME", str(tmp_path))


def send(harness, method, path, body=None, **options):
    return asyncio.run(person(harness.app, **options).send(method, path, body))


def models(harness, **options):
    reply = send(harness, "GET", "/ask/models", **options)
    assert reply.status == 200, reply.body
    assert KEY not in reply.body.decode()
    schema = {"$ref": "#/components/schemas/ModelOverview", "components": openapi_document(harness.app)["components"]}
    jsonschema_rs.Draft202012Validator(schema, offline=True).validate(reply.json)
    return reply.json


def test_which_providers_can_be_asked(tmp_path):
    with Harness(tmp_path) as harness:
        told = models(harness)
        assert (told["provider"], told["model"]) == ("openai", "stand-in")
        by_name = {one["id"]: one for one in told["providers"]}
        assert tuple(by_name) == PROVIDERS
        assert by_name["openai"]["models"][0] == "stand-in"
        assert [one for one in by_name if not by_name[one]["isConfigured"]] == ["ollama"]
        assert by_name["ollama"]["missing"] == "OLLAMA_HOST"
        assert len(by_name["gemini"]["models"]) == 1
        assert "missing" not in by_name["gemini"]
        asked = [one.path for one in harness.model.seen]
        assert all(path.endswith("/models") for path in asked), asked  # nobody was asked a question


def test_secrets_are_masked(tmp_path):
    with Harness(tmp_path, ask={"model": f"my-{KEY}"}) as harness:
        assert models(harness)["model"] == "my-***"


def test_what_is_missing_is_named(tmp_path):
    with Harness(
        tmp_path, ask={"provider": "anthropic", "base_url": None, "model": None}, secrets={"OTHER": "x" * 20}
    ) as harness:
        reply = send(harness, "GET", "/ask/models")
        told = reply.json
    assert (told["provider"], told["model"]) == (None, None)
    missing = {one["id"]: one.get("missing") for one in told["providers"]}
    assert missing == {name: key_name(name) for name in PROVIDERS} | {"ollama": "OLLAMA_HOST"}


def test_an_ollama_lists_its_models(tmp_path, monkeypatch):
    with Harness(tmp_path, "ollama") as harness:
        monkeypatch.setenv("OLLAMA_HOST", harness.model.urls["ollama"])
        told = models(harness)
        found = next(one for one in told["providers"] if one["id"] == "ollama")
    assert (told["provider"], told["model"], found["isConfigured"]) == ("ollama", "stand-in", True)
    assert found["models"]


def test_a_server_of_the_config_that_wants_a_key_needs_it(tmp_path):
    with Harness(tmp_path, secrets={"OTHER": "x" * 20}) as harness:
        told = models(harness)
        found = next(one for one in told["providers"] if one["id"] == "openai")
        assert (told["provider"], found["isConfigured"], found["missing"]) == (None, False, "OPENAI_API_KEY")
        assert found["needs"][0]["secret"] == "OPENAI_API_KEY"
        assert send(harness, "GET", "/ask/models/openai").json == found


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """An app without an address in its config, and a stand-in where the provider itself would be."""
    with Harness(tmp_path, ask={"provider": "anthropic", "base_url": None, "model": None}) as harness:
        monkeypatch.setattr(adapter("anthropic"), "base_url", harness.model.urls["anthropic"])
        yield harness


def test_a_provider_with_a_key_lists_its_models(hosted):
    assert next(one for one in models(hosted)["providers"] if one["id"] == "anthropic")["models"] == [CLAUDE]
    assert hosted.model.others == []  # the overview asks nobody
    found = send(hosted, "GET", "/ask/models/anthropic").json
    assert found["models"] == [CLAUDE, "stand-in", "stand-in-small"]
    assert "error" not in found
    [asked] = hosted.model.others
    assert asked.headers["x-api-key"] == KEY


def test_a_list_that_cannot_be_read_is_told_without_the_key(hosted, monkeypatch):
    monkeypatch.setattr(adapter("anthropic"), "base_url", "http://127.0.0.1:9")
    reply = send(hosted, "GET", "/ask/models/anthropic")
    assert (reply.status, reply.json["models"]) == (200, [CLAUDE])
    assert "127.0.0.1:9" in reply.json["error"]
    assert KEY not in reply.body.decode()


def test_a_provider_without_a_key_is_not_asked(tmp_path):
    ask = {"provider": "anthropic", "base_url": None, "model": None}
    with Harness(tmp_path, ask=ask, secrets={"OTHER": "x" * 20}) as harness:
        found = send(harness, "GET", "/ask/models/anthropic").json
        assert (found["isConfigured"], found["missing"]) == (False, "ANTHROPIC_API_KEY")
        assert harness.model.others == []
        refused = send(harness, "GET", "/ask/models/nobody")
    assert (refused.status, refused.json["code"]) == (404, "not_found")


def test_what_the_tools_cost_depends_on_which_there_are(tmp_path):
    with Harness(tmp_path) as harness:
        every, one, none = models(harness), models(harness, allowed=["time.now"]), models(harness, allowed=[])
    assert every["toolTokens"] > one["toolTokens"] > none["toolTokens"] == 0
    (tmp_path / "run").mkdir()
    with Harness(tmp_path / "run", ask={"menu": "run"}) as harness:
        assert 0 < models(harness)["toolTokens"] < every["toolTokens"]


# Files


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_gets_pictures_and_texts(tmp_path, provider):
    files = [
        {"name": "plan.png", "kind": "image/png", "data": PICTURE},
        {"name": "notes.md", "text": "Tea is at five."},
    ]
    with Harness(tmp_path, provider) as harness:
        harness.model.will("A plan.")
        reply = send(harness, "POST", "/ask", {"prompt": "What is it?", "files": files})
        assert reply.status == 200, reply.body
        assert not harness.model.refused
        sent = json.dumps(harness.model.seen[-1].body)
        assert PICTURE in sent
        assert "Tea is at five." in sent
        read = send(harness, "GET", f"/ask/sessions/{reply.json['sessionId']}").json
    assert [one["name"] for one in read["messages"][0]["files"]] == ["plan.png", "notes.md"]


@pytest.mark.parametrize(
    "file",
    [
        {"name": "a.md", "text": "x" * (MAX_FILE_BYTES + 1)},
        {"name": "a.png", "kind": "image/png", "data": "aaaa" * (MAX_FILE_BYTES // 3 + 2)},
    ],
)
def test_files_are_bounded_together(tmp_path, file):
    with Harness(tmp_path, http={"max_body_mb": 64}) as harness:
        reply = send(harness, "POST", "/ask", {"prompt": "x", "files": [file]})
    assert (reply.status, reply.json["pointer"]) == (400, "/files")
    assert "5 MiB" in reply.json["detail"]


def test_what_is_neither_a_picture_nor_a_text_is_refused_in_words(tmp_path):
    with Harness(tmp_path) as harness:
        file = {"name": "a.pdf", "kind": "application/pdf", "data": "aaaa"}
        reply = send(harness, "POST", "/ask", {"prompt": "x", "files": [file]})
    assert (reply.status, reply.json["pointer"]) == (400, "/files/0/kind")
    assert "image/png" in reply.json["detail"]
