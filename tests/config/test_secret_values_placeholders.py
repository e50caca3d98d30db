"""`${NAME}`: where it is replaced, where it stays, and that its value is never shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from onetool.config import Config
from onetool.core.errors import Mistake

Load = Callable[..., Config]
OneMistake = Callable[..., Mistake]

ENV = {"TOKEN": "open-sesame", "HOST": "example.com", "PORT": "9999", "NESTED": "a${TOKEN}b"}


def test_it_is_replaced_in_servers_http_ask_and_settings(load: Load) -> None:
    config = load(
        """
servers:
  a: {url: "https://${HOST}/mcp", headers: {Authorization: Bearer ${TOKEN}}}
  b: {command: x, args: ["--key=${TOKEN}"], env: {KEY: "${TOKEN}"}}
http: {token: ${TOKEN}, port: ${PORT}}
ask: {base_url: "http://${HOST}/v1"}
settings: {brave: {keys: ["${TOKEN}", plain]}}
watch: ${WATCH}
""",
        {**ENV, "WATCH": "true"},
    )
    assert config.servers["a"].url == "https://example.com/mcp"
    assert config.servers["a"].headers == {"Authorization": "Bearer open-sesame"}
    assert (config.servers["b"].args, config.servers["b"].env) == (("--key=open-sesame",), {"KEY": "open-sesame"})
    assert (config.http.token, config.http.port) == ("open-sesame", 9999)
    assert config.ask.base_url == "http://example.com/v1"
    assert config.settings == {"brave": {"keys": ["open-sesame", "plain"]}}
    assert config.watch is True


def test_it_stays_in_tools_snippets_aliases_prompts_and_hosts(load: Load, tmp_path: Path) -> None:
    config = load(
        'tools: [{name: "${NO}"}]\nsnippets: {s: {body: "${NO}"}}\naliases: {a: "${NO}"}\n'
        'prompts: "${NO}"\nallowedHosts: ["${NO}"]\n'
    )
    assert config.tools[0].definition == {"name": "${NO}"}
    assert config.snippets["s"].body == "${NO}"
    assert config.aliases == {"a": "${NO}"}
    assert config.prompts == tmp_path / "${NO}"
    assert config.allowed_hosts[0].host == "${NO}"


def test_one_pass(load: Load) -> None:
    assert load("settings: {a: {b: '${NESTED}'}}\n", ENV).settings == {"a": {"b": "a${TOKEN}b"}}


@pytest.mark.parametrize("env", [{}, {"NOPE": ""}])
def test_a_missing_secret(env: dict[str, str], mistake: OneMistake, tmp_path: Path) -> None:
    found = mistake("menu: run\nhttp:\n  token: ${NOPE}\n", env)
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), 3, "http.token")
    assert found.message == "the secret NOPE is not set"
    assert "environment variable NOPE" in (found.hint or "")
    assert f"add it to {tmp_path / 'secrets.yaml'}" in (found.hint or "")


def test_a_missing_secret_with_a_secrets_file(mistake: OneMistake, write: Callable[..., Path]) -> None:
    file = write("API_TOKEN: abcdef\n", "secrets.yaml")
    found = mistake("secrets: secrets.yaml\nhttp: {token: ${API_TOKN}}\n")
    assert found.hint == (
        "did you mean API_TOKEN? Otherwise run: onetool auth set API_TOKN; "
        f"or set the environment variable API_TOKN, or add it to {file}"
    )


def test_all_missing_ones_are_told(mistakes: Callable[..., tuple[Mistake, ...]]) -> None:
    found = mistakes("settings: {a: {b: '${A}${B}${A}', c: '${C}'}}\n")
    assert [mistake.message for mistake in found] == [f"the secret {name} is not set" for name in "ABC"]


@pytest.mark.parametrize("text", ["${VAR:-x}", "${env:VAR}", "${}", "${A B}"])
def test_other_forms_stay_and_are_warned_about(text: str, load: Load) -> None:
    config = load(f"settings:\n  a:\n    b: '{text}'\n")
    assert config.settings == {"a": {"b": text}}
    (warning,) = config.warnings
    assert (warning.line, warning.key, warning.message) == (3, "settings.a.b", f"{text} is not replaced")
    assert "only ${NAME}" in (warning.hint or "")


def test_no_value_in_the_repr(load: Load) -> None:
    config = load(
        "http: {token: ${TOKEN}}\nsettings: {a: {b: 'x ${TOKEN}'}}\npacks: ['${TOKEN}/p']\n"
        "servers: {a: {command: x, env: {K: literal-key}, headers: {A: '${TOKEN}'}}}\n",
        ENV,
    )
    assert "open-sesame" not in repr(config)
    assert "literal-key" not in repr(config)
    assert "'${TOKEN}'" in repr(config.http)
    assert "'x ${TOKEN}'" in repr(config.settings)
    assert f"{config.http.token}" == "open-sesame"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http: {port: '${TOKEN}'}", "expected a whole number, got the value of ${TOKEN}"),
        ("http: {port: '${BIG}'}", "must be from 0 to 65535, got the value of ${BIG}"),
        ("run: {max_calls: '${LONG}'}", "expected a whole number, got the value of ${LONG}"),
        ("menu: x${TOKEN}", "expected run, search or direct, got the value of x${TOKEN}"),
        ("servers: '${TOKEN}'", "expected a mapping, got the value of ${TOKEN}"),
        ("run: {timeout_s: '${BIG}e999'}", "expected a number, got the value of ${BIG}e999"),
    ],
)
def test_no_value_in_a_mistake(text: str, message: str, mistake: OneMistake) -> None:
    values = {**ENV, "BIG": "99999", "LONG": "9" * 5000}
    found = mistake(text, values)
    assert found.message == message
    assert not any(value in str(found) for value in values.values())
