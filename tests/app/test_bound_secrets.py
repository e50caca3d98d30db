"""Secrets that are bound to hosts: given to requests that go there, and to nothing else."""

import asyncio
import os

import msgspec
import pytest

from onetool.app import App
from onetool.app.provider_keys import keys_for
from onetool.ask.model_choice import ModelChoice
from onetool.config import load_config
from onetool.core.errors import ConfigError, ToolFailure
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.http.tool import HttpTool

VALUE = "sk-live-0123456789"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".onetool").mkdir()
    write(tmp_path, f"KEY: {{value: {VALUE}, hosts: [api.example.com, '*.example.org']}}\nFREE: free-0123456789\n")
    return tmp_path


def write(folder, text, config="{}\n"):
    file = folder / ".onetool" / "secrets.yaml"
    file.write_text(text)
    file.chmod(0o600)
    (folder / ".onetool" / "onetool.yaml").write_text(config)


def config_of(folder, text=None):
    file = folder / ".onetool" / "onetool.yaml"
    if text is not None:
        file.write_text(text)
    return load_config(file, env=os.environ)


class Recorder:
    """Stands for the client: remembers what would have gone out."""

    def __init__(self, real):
        self.sent, self.tokens = [], real.tokens

    async def send(self, outgoing, _hosts, **_):
        self.sent.append(outgoing)
        raise ToolFailure("sent")


def tried(folder, request):
    """What an HTTP tool sends, and what it says."""
    with App.open(folder / ".onetool" / "onetool.yaml") as app:
        client = Recorder(app.runtime.client)
        outside = app.runtime.http_context._replace(client=client, hosts=AllowedHosts([HostRule("*", True)]))
        impl = msgspec.convert({"request": {"method": "GET", **request}, "response": {}}, HttpImpl)
        schema = {"type": "object", "properties": {"host": {"type": "string"}}}
        tool = HttpTool(impl, schema, ToolLimits(), lambda: outside)
        with pytest.raises(ToolFailure) as caught:
            asyncio.run(tool(host="evil.test"))
    return client.sent, str(caught.value)


PLACES = {
    "path": {"urlTemplate": "https://{host}/${KEY}"},
    "query": {"urlTemplate": "https://{host}/x?k=${KEY}"},
    "header": {"urlTemplate": "https://{host}/x", "headers": {"X-Key": "${KEY}"}},
    "body": {"urlTemplate": "https://{host}/x", "method": "POST", "body": {"k": "${KEY}"}},
    "bearer": {"urlTemplate": "https://{host}/x", "auth": {"type": "bearer", "value": "${KEY}"}},
    "token": {
        "urlTemplate": "https://somewhere.test/x",
        "auth": {"type": "oauth2", "tokenUrl": "https://{host}/t", "clientId": "c", "clientSecret": "${KEY}"},
    },
}


def at(place, host):
    request = {**PLACES[place], "urlTemplate": PLACES[place]["urlTemplate"].replace("{host}", host)}
    if place == "token":
        request["auth"] = {**request["auth"], "tokenUrl": request["auth"]["tokenUrl"].replace("{host}", host)}
    return request


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("host", ["evil.test", "example.org", "api.example.com:8443", "api.example.com.evil.test"])
def test_no_tool_sends_it_elsewhere(folder, place, host):
    sent, words = tried(folder, at(place, host))
    assert sent == []
    assert "KEY" in words
    assert "api.example.com, *.example.org" in words
    assert VALUE not in words


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("host", ["api.example.com", "API.example.com.", "a.b.example.org"])
def test_a_tool_sends_it_there(folder, place, host):
    sent, _ = tried(folder, at(place, host))
    assert len(sent) == 1


def test_a_host_that_an_argument_makes_is_looked_at_when_it_is_known(folder):
    sent, words = tried(folder, {"urlTemplate": "https://${host}/x", "headers": {"X-Key": "${KEY}"}})
    assert sent == []
    assert "KEY" in words


def test_packs_do_not_get_it(folder):
    (folder / ".onetool" / "packs").mkdir()
    (folder / ".onetool" / "packs" / "mine.py").write_text(
        "from onetool.sdk import get_secret\ndef show(name: str) -> int:\n    return len(get_secret(name) or '')\n"
    )
    with App.open(folder / ".onetool" / "onetool.yaml") as app:
        assert asyncio.run(app.run("mine.show(name='FREE')")).value() == 15
        error = asyncio.run(app.run("mine.show(name='KEY')")).error
    assert error is not None
    assert "api.example.com" in error.message


def test_the_environment_does_not_get_around_it(folder, monkeypatch):
    monkeypatch.setenv("KEY", "of-the-environment")
    with pytest.raises(ToolFailure):
        config_of(folder).secrets.get("KEY")


@pytest.mark.parametrize(
    "server",
    [
        "{command: x, env: {K: '${KEY}'}}",
        "{command: x, args: ['${KEY}']}",
        "{url: 'https://evil.test/', headers: {X: '${KEY}'}}",
        "{url: 'https://evil.test/${KEY}'}",
        "{url: 'https://api.example.com@evil.test/', headers: {X: '${KEY}'}}",
        "{url: 'https://evil.test/', auth: '${KEY}'}",
        "{url: 'https://api.example.com/', auth: {type: client_credentials, client_id: c, client_secret: '${KEY}'}}",
        "{url: 'https://api.example.com/', env: {K: '${KEY}'}}",
    ],
)
def test_servers_elsewhere_do_not_get_it(folder, server):
    config = config_of(folder, f"servers: {{one: {server}, two: {{command: y}}}}\n")
    assert VALUE not in msgspec.json.encode(config.servers["one"], enc_hook=str).decode()
    [told] = [one for one in config.warnings if "KEY" in one.message]
    assert "api.example.com, *.example.org" in told.message
    assert told.line == 1


def test_servers_there_get_it(folder):
    config = config_of(
        folder,
        "servers:\n  one: {url: 'https://api.example.com/${KEY}', headers: {X: '${KEY}'}, auth: '${KEY}'}\n"
        "  two: {url: 'https://a.example.org/', auth: {type: bearer, token: '${KEY}'}}\n",
    )
    one, two = config.servers["one"], config.servers["two"]
    assert (str(one.url), str(one.headers["X"]), str(one.auth)) == (f"https://api.example.com/{VALUE}", VALUE, VALUE)
    assert isinstance(two.auth, dict)
    assert str(two.auth["token"]) == VALUE
    assert not config.warnings


def test_no_other_key_of_the_config_gets_it(folder):
    with pytest.raises(ConfigError) as caught:
        config_of(folder, "\nhttp: {token: '${KEY}'}\n")
    [told] = caught.value.mistakes
    assert (told.line, told.key) == (2, "http.token")
    assert "KEY" in told.message
    assert VALUE not in str(told)


@pytest.mark.parametrize(
    ("base_url", "given"),
    [
        (None, True),
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", False),
        ("http://127.0.0.1/", False),
    ],
)
def test_a_providers_key(folder, base_url, given):
    write(folder, f"OPENAI_API_KEY: {{value: {VALUE}, hosts: [api.openai.com]}}\n")
    secret = keys_for(config_of(folder), ModelChoice(base_url=base_url))
    assert secret("OPENAI_API_KEY") == (VALUE if given else None)


@pytest.mark.parametrize(
    ("entry", "line", "words"),
    [
        (f"{{value: {VALUE}}}", 2, "hosts"),
        ("{hosts: [a.example]}", 2, "value"),
        (f"{{value: {VALUE}, hosts: []}}", 2, "empty"),
        (f"{{value: {VALUE}, hosts: ['https://a.example/x']}}", 2, "not a host"),
        (f"{{value: {VALUE}, hosts: ['*']}}", 2, "any host"),
        (f"{{value: {VALUE}, host: [a.example]}}", 2, "host"),
        (f"{{value: [{VALUE}], hosts: [a.example]}}", 2, "string"),
        (f"[{VALUE}]", 2, "string"),
        (f"\n  value: {VALUE}\n  hosts: 7\n", 4, "list"),
    ],
)
def test_mistakes_are_told_with_their_line(folder, entry, line, words):
    write(folder, f"# mine\nKEY: {entry}\n")
    with pytest.raises(ConfigError) as caught:
        config_of(folder)
    told = "\n".join(map(str, caught.value.mistakes))
    assert VALUE not in told
    assert words in told
    assert {(mistake.file, mistake.line) for mistake in caught.value.mistakes} == {
        (str(folder / ".onetool" / "secrets.yaml"), line)
    }


def test_it_is_masked_like_any_other(folder):
    assert config_of(folder).secrets.redact(f"x {VALUE}") == "x ***"
    (folder / ".onetool" / "onetool.yaml").write_text(f"secrets: {{KEY: {{value: {VALUE}, hosts: [a.example]}}}}\n")
    assert config_of(folder).secrets.redact(f"x {VALUE}") == "x ***"
