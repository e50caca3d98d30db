"""Which provider and model: what is named, what there is a key for, what runs here; and what to do without any."""

import asyncio
import json

import msgspec
import pytest
from ask.fake import KEY, Fake, listen, run
from ask.harness import Harness
from ask.stand_in import Says
from helpers import each
from upstream import Reply, Upstream

from onetool.ask import model_choice
from onetool.ask.errors import ModelError, NoModelError
from onetool.ask.model_choice import ModelChoice, choose_model, ollama_url
from onetool.ask.providers import ranked_providers
from onetool.core.model_providers import PROVIDERS
from onetool.http.client import HttpClient

NOWHERE = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def adapters(monkeypatch):
    made = {name: Fake(name, base_url=f"https://{name}.example/v1", model=f"{name}-0") for name in PROVIDERS}
    made["ollama"] = Fake("ollama", "lines", "http://127.0.0.1:11434", None)
    monkeypatch.setattr(model_choice, "adapter", made.__getitem__)
    return made


@pytest.fixture
def chosen(adapters):
    def choosing_of(*keys, ollama=NOWHERE, **wanted):
        secrets = dict.fromkeys(keys, KEY)
        return run(choose_model(ModelChoice(**wanted), secrets.get, HttpClient(), {"OLLAMA_HOST": ollama}))

    return choosing_of


@pytest.fixture
def refused(chosen):
    def refusal_of(*keys, kind=NoModelError, **wanted):
        with pytest.raises(kind) as caught:
            chosen(*keys, **wanted)
        assert type(caught.value) is kind
        assert KEY not in f"{caught.value} {caught.value.hints}"
        return caught.value

    return refusal_of


def models(*names, able=()):
    """A server with these; those that are able call tools."""

    def say(seen):
        if seen.target == "/api/show":
            can = ["completion", *(["tools"] if json.loads(seen.body)["model"] in able else [])]
            return Reply(body=json.dumps({"capabilities": can}).encode())
        return Reply(body=json.dumps({"models": list(names)}).encode())

    return say


def who(model):
    return model.provider, model.name, model.base_url


# Providers


@pytest.mark.parametrize("name", [*ranked_providers(), " OpenAI "])
def test_the_one_that_is_named(chosen, name):
    plain = name.strip().lower()
    model = chosen(f"{plain.upper()}_API_KEY", provider=name)
    assert who(model) == (plain, f"{plain}-0", f"https://{plain}.example/v1")


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (["GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"], "openai"),
        (["GEMINI_API_KEY", "ANTHROPIC_API_KEY"], "anthropic"),
        (["GEMINI_API_KEY", "OLLAMA_API_KEY"], "gemini"),
    ],
)
def test_the_first_that_there_is_a_key_for(chosen, upstream, keys, name):
    assert chosen(*keys, ollama=upstream.url).provider == name
    assert not upstream.seen


def test_a_base_url_alone_is_a_server_that_speaks_openai(chosen, upstream):
    upstream.say(models("x"))
    assert who(chosen("ANTHROPIC_API_KEY", base_url=f"{upstream.url}/v1/")) == ("openai", "x", f"{upstream.url}/v1")
    assert "authorization" not in upstream.seen[0].headers


def test_a_provider_that_is_none(refused):
    error = refused(provider="opnai")
    assert error.reason == "no_provider"
    assert "did you mean openai?" in str(error)
    assert ", ".join(PROVIDERS) in error.hints[0]


@pytest.mark.parametrize("base_url", [None, "https://openai.example/v1/"])
def test_a_key_that_is_missing(refused, base_url):
    error = refused("GEMINI_API_KEY", provider="openai", base_url=base_url)
    assert (error.reason, str(error)) == ("no_key", "there is no key for openai: OPENAI_API_KEY is not set")
    assert "`onetool auth set openai`" in error.hints[0]


def test_elsewhere_a_key_is_used_and_not_demanded(chosen, upstream):
    upstream.say(models("x"))
    assert chosen("OPENAI_API_KEY", base_url=upstream.url).name == "x"
    assert upstream.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert chosen(provider="anthropic", base_url=upstream.url, model="y").name == "y"


def test_a_base_url_that_is_none(refused):
    for provider in (None, "openai", "ollama"):
        assert "ask.base_url" in str(refused("OPENAI_API_KEY", provider=provider, base_url="localhost:8000"))


def test_there_is_nothing(refused):
    error = refused()
    assert error.reason == "no_provider"
    assert f"no key for {', '.join(ranked_providers())}, and Ollama does not respond at {NOWHERE}" in str(error)
    ways = "\n".join(error.hints)
    assert len(error.hints) <= 4
    for way in ("onetool auth set openai", "anthropic", "gemini", "ollama serve", "base_url", "OLLAMA_HOST"):
        assert way in ways


# An Ollama


def test_an_ollama_that_answers(chosen, upstream):
    upstream.say(models("llama"))
    assert who(chosen(ollama=upstream.netloc)) == ("ollama", "llama", upstream.url)
    assert [(one.method, one.target) for one in upstream.seen] == [("GET", "/api/tags")]
    assert "authorization" not in upstream.seen[0].headers


def test_its_key_is_used_if_there_is_one(chosen, upstream):
    upstream.say(models("llama"))
    chosen("OLLAMA_API_KEY", ollama=upstream.netloc)
    assert upstream.seen[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("provider", [None, "ollama"])
@pytest.mark.parametrize("named", ["", " ", "''", "127.0.0.1", "base_url"])
def test_its_key_goes_only_where_somebody_named_the_place(adapters, upstream, provider, named):
    """Anybody may listen on its port, where it does not run."""
    upstream.say(models("llama"))
    ports = []

    async def connect(factory, address, port, **_):
        ports.append(port)
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", upstream.port)

    wanted = ModelChoice(provider="ollama", base_url="http://127.0.0.1:11434") if named == "base_url" else ModelChoice()
    wanted = wanted if provider is None else msgspec.structs.replace(wanted, provider=provider)
    secrets, env = {"OLLAMA_API_KEY": KEY}, {"OLLAMA_HOST": named if named != "base_url" else ""}
    run(choose_model(wanted, secrets.get, HttpClient(connect=connect), env))
    assert ports == [11434]
    assert ("authorization" in upstream.seen[0].headers) is (named in ("127.0.0.1", "base_url"))


def test_a_key_that_was_not_sent_is_told(adapters, upstream):
    upstream.say(Reply(401, {}, b"no"))

    async def connect(factory, address, port, **_):
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", upstream.port)

    with pytest.raises(ModelError) as caught:
        run(choose_model(ModelChoice(provider="ollama"), {"OLLAMA_API_KEY": KEY}.get, HttpClient(connect=connect), {}))
    assert caught.value.hints == ("OLLAMA_API_KEY is sent only if OLLAMA_HOST or ask.base_url is set",)


def test_one_that_calls_tools_is_better(chosen, upstream):
    upstream.say(models("a", "b", "c", able=("b", "c")))
    assert chosen(ollama=upstream.netloc).name == "b"
    upstream.say(models("a", "b"))
    assert chosen(ollama=upstream.netloc).name == "a"
    upstream.say(lambda seen: Reply(404) if seen.method == "POST" else models("a", "b")(seen))
    assert chosen(ollama=upstream.netloc).name == "a"


def test_a_model_that_is_named_is_not_looked_for(chosen, upstream):
    upstream.say(models("a", "b"))
    assert chosen(ollama=upstream.netloc, model="mine").name == "mine"
    assert chosen(provider="ollama", ollama=upstream.netloc, model="mine").base_url == upstream.url
    assert [one.target for one in upstream.seen] == ["/api/tags"]


def test_an_ollama_without_models(refused, upstream):
    upstream.say(models())
    for provider in (None, "ollama"):
        error = refused(provider=provider, ollama=upstream.netloc)
        assert error.reason == "no_model"
        assert "`ollama pull " in error.hints[0]


def test_an_ollama_that_was_named_and_is_not_there(refused):
    error = refused(kind=ModelError, provider="ollama")
    assert error.reason == "unreachable"
    assert error.hints == (f"is it running? ollama is expected at {NOWHERE}: `ollama serve` starts it",)


@pytest.mark.parametrize("said", [[60.0], Reply(404), Reply(body=b"<html>"), Reply(body=b"{}")])
def test_somebody_else_at_its_port(refused, upstream, monkeypatch, said):
    monkeypatch.setattr(model_choice, "PROBE", 0.1)
    upstream.say(said)
    assert refused(ollama=upstream.netloc).reason == "no_provider"


def test_an_address_that_is_none(refused):
    assert "OLLAMA_HOST can't be used" in str(refused(ollama="http://a b"))


@each(
    ("text", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        (" \"'box'\" ", "http://box:11434"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:1234", "http://[::1]:1234"),
        ("::", "http://[::1]:11434"),
        ("[fd00::7]", "http://[fd00::7]:11434"),
        ("fd00::7", "http://[fd00::7]:11434"),
        ("box:no", "http://box:11434"),
        ("box:70000", "http://box:11434"),
        ("http://box", "http://box:80"),
        ("https://box/", "https://box:443"),
        ("https://box:8443/ollama/", "https://box:8443/ollama"),
        ("box/ollama", "http://box:11434/ollama"),
        ("ollama.com", "https://ollama.com:443"),
    ],
)
def test_where_ollama_is(text, url):
    assert ollama_url({"OLLAMA_HOST": text}) == url


# Models


def test_a_model_that_is_named(chosen):
    assert chosen("OPENAI_API_KEY", model="mine").name == "mine"


def test_elsewhere_it_is_the_first_that_is_there(chosen, upstream):
    upstream.say(models("newest", "older"))
    assert chosen(base_url=upstream.url).name == "newest"
    assert [one.target for one in upstream.seen] == ["/models"]


@pytest.mark.parametrize("said", [models(), Reply(404, {}, b"nothing"), Reply(body=b"<html>")])
def test_elsewhere_there_is_none(refused, upstream, said):
    upstream.say(said)
    error = refused(base_url=upstream.url)
    assert (error.reason, error.hints) == ("no_model", ("choose a model with --model, or ask.model in the config",))
    assert upstream.url in str(error)


def test_elsewhere_the_key_is_wrong(refused, upstream):
    upstream.say(Reply(401, {}, b"no"))
    error = refused("OPENAI_API_KEY", kind=ModelError, base_url=upstream.url)
    assert "`onetool auth set openai`" in error.hints[0]


def test_it_can_be_asked(adapters, upstream):
    """What was chosen is asked where it was looked for, and as long as was wanted."""
    adapters["openai"].base_url = upstream.url
    upstream.say([60.0])

    async def main():
        model = await choose_model(ModelChoice(timeout=0.1), {"OPENAI_API_KEY": KEY}.get, HttpClient(), {})
        with pytest.raises(ModelError) as caught:
            await listen(model)
        return caught.value

    assert run(main()).reason == "timeout"
    assert upstream.seen[0].target == "/chat"


def test_the_environment_is_read_when_nothing_is_given(adapters, upstream, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", upstream.netloc)
    upstream.say(models("llama"))
    assert asyncio.run(choose_model(ModelChoice(), {}.get, HttpClient())).name == "llama"


def test_ollama_is_not_below_v1():
    async def chosen():
        return await choose_model(
            ModelChoice(provider="ollama", base_url="http://127.0.0.1:9/v1/", model="m"),
            lambda _: None,
            HttpClient(),
            {},
        )

    assert asyncio.run(chosen()).base_url == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("provider", "version"), [("gemini", "/v1beta"), ("gemini", "/v1beta/"), ("anthropic", "/v1"), ("ollama", "/v1/")]
)
def test_the_version_of_the_api_may_stand_at_the_end_of_base_url(tmp_path, provider, version):
    with Harness(tmp_path, provider) as harness:
        at = harness.model.urls[provider].removesuffix("/v1").removesuffix("/v1beta")
        harness.config.write_text(harness.config.read_text().replace(harness.model.urls[provider], at + version))
        harness.app.reload()
        harness.model.will(Says("Noon."))
        assert harness.ask().answer == "Noon."
