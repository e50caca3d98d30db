"""The whole config: every key, its default, its mistakes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.config import Config, load_config
from onetool.config.check import fields_of
from onetool.config.model import Declared, Keys
from onetool.core.errors import ConfigError, Mistake

SAME = ", ".join(f"{{name: {name}, hash: 'sha256:{'a' * 64}'}}" for name in "ab")
JWT = "{issuer: 'https://id.example.com/a|b', audience: x, scopes: {y: {}}}"

EXAMPLE = """\
tools: [{name: weather, description: …, type: function, handler: weather, parameters: {type: object, properties: {}}, implementation: {type: mock, mock_response: {c: 21}}}]
include: [more.yaml]
packs: [./packs]                       # folders or files
settings: {brave: {timeout: 10}}       # per pack
fs: {roots: [.]}
menu: run                              # run | search | direct
watch: false                           # reload when files change
servers: {clock: {command: mcp-server-time, args: []}, docs: {url: "http://127.0.0.1:9000/mcp", headers: {}}}
aliases: {ws: brave.web_search}
snippets: {research: {description: …, params: {topic: {type: string, description: …}, count: {type: integer, default: 5}}, body: "…{{ topic }}…"}}
secrets: secrets.yaml                  # a file beside this one, or a mapping
prompts: prompts.yaml
topics: [{pattern: "notes*", file: notes.yaml}]
allowedHosts: [api.example.com, {host: "localhost:9000", allowPrivate: true}]
run: {timeout_s: 30, memory_mb: 256, max_calls: 1000, max_output_bytes: 1048576, typecheck: false}
results: {inline_bytes: 16384, ttl_s: 3600, max_total_mb: 512, link: false}
stats: {enabled: true, retention_days: 90}
ask: {provider: openai, model: gpt-x, base_url: "http://127.0.0.1:8000/v1", max_steps: 8}
http: {host: 127.0.0.1, port: 8765, token: ${ONETOOL_TOKEN}}
"""  # noqa: E501 - as the documentation gives it

Load = Callable[..., Config]
OneMistake = Callable[..., Mistake]


def test_the_documented_example(load: Load, write: Callable[..., Path], tmp_path: Path) -> None:
    write("aliases: {more: time.now}\n", "more.yaml")
    write("API_KEY: abcdefgh\n", "secrets.yaml")
    write("", "prompts.yaml")
    config = load(EXAMPLE, {"ONETOOL_TOKEN": "sesame"})
    assert config.warnings == ()
    assert config.path == tmp_path / "onetool.yaml"
    assert config.home == tmp_path
    assert config.tools[0].definition["implementation"] == {"type": "mock", "mock_response": {"c": 21}}
    assert config.include == (tmp_path / "more.yaml",)
    assert config.packs == (tmp_path / "packs",)
    assert config.settings == {"brave": {"timeout": 10}}
    assert config.aliases == {"ws": "brave.web_search", "more": "time.now"}
    assert config.servers["clock"].command == "mcp-server-time"
    assert config.servers["docs"].url == "http://127.0.0.1:9000/mcp"
    params = config.snippets["research"].params
    assert (params["count"].default, params["topic"].default) == (5, msgspec.UNSET)
    assert config.prompts == tmp_path / "prompts.yaml"
    assert (config.topics[0].pattern, config.topics[0].file) == ("notes*", tmp_path / "notes.yaml")
    hosts = [(host.host, host.allow_private) for host in config.allowed_hosts]
    assert hosts == [("api.example.com", False), ("localhost:9000", True)]
    assert (config.ask.provider, config.ask.model) == ("openai", "gpt-x")
    assert config.http.token == "sesame"
    assert config.secrets.get("API_KEY") == "abcdefgh"


def test_the_examples_values_are_the_defaults(load: Load, write: Callable[..., Path]) -> None:
    write("", "more.yaml")
    write("", "secrets.yaml")
    config = load(EXAMPLE, {"ONETOOL_TOKEN": "sesame"})
    default = load_config(None, env={"HOME": "/home/me"})
    for section in ("fs", "menu", "run", "results", "stats"):
        assert getattr(config, section) == getattr(default, section), section
    assert (default.http.host, default.http.port, default.http.token) == ("127.0.0.1", 8765, None)
    assert (default.ask.provider, default.ask.model, default.ask.base_url, default.ask.max_steps) == (
        None,
        None,
        None,
        8,
    )
    assert (default.path, default.home, default.tools) == (None, Path("/home/me/.onetool"), ())


def test_without_a_file_the_yaml_parser_is_not_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from onetool.config import load_config; load_config(None, env={'HOME': '/'})\n"
        "print(sorted({'yaml', 'rapidfuzz'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == "[]"


def test_declared_tools_are_kept_as_written(load: Load, tmp_path: Path) -> None:
    config = load("menu: run\ntools:\n  - name: a\n  - 5\n  - {name: b, x: no}\n  -\n")
    file = str(tmp_path / "onetool.yaml")
    assert config.tools == (
        Declared({"name": "a"}, file, 3, 0),
        Declared(5, file, 4, 1),
        Declared({"name": "b", "x": "no"}, file, 5, 2),
        Declared(None, file, 6, 3),
    )
    assert config.warnings == ()


def test_a_tools_mistakes_stay_with_the_tool(load: Load) -> None:
    config = load("tools:\n  - {name: a, name: b}\n  - {name: c}\n  - {name: d, 1: e}\n")
    twice, fine, number = config.tools
    assert [(mistake.line, mistake.key) for mistake in twice.mistakes] == [(2, "tools[0].name")]
    assert fine.mistakes == ()
    assert [(mistake.line, mistake.key) for mistake in number.mistakes] == [(4, "tools[2]")]


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "hint"),
    [
        ("tools: 5\n", 1, "tools", "expected a list, got the number 5", None),
        ("tools:\n  a: b\n", 1, "tools", "expected a list, got a mapping", None),
        ("menu: serch\n", 1, "menu", "expected run, search or direct", "did you mean search?"),
        ("\nmenus: run\n", 2, "menus", "unknown key 'menus'", "did you mean menu?"),
        ("allowed_hosts: []\n", 1, "allowed_hosts", "unknown key", "did you mean allowedHosts?"),
        ("menu: run\nmenu: run\n", 2, "menu", "set twice, in line 1 and in line 2", "remove one of them"),
        ("watch: yes\n", 1, "watch", "expected true or false, got the string 'yes'", None),
        ("http:\n  prot: 1\n", 2, "http.prot", "unknown key", "did you mean port?"),
        ("http: {port: abc}\n", 1, "http.port", "expected a whole number, got the string 'abc'", None),
        ("http: {port: 65536}\n", 1, "http.port", "must be from 0 to 65535", None),
        ("http: {token: ''}\n", 1, "http.token", "must not be empty", None),
        ("http: {token: 12345}\n", 1, "http.token", "expected a string, got a number", "quote it"),
        (f"http: {{tokens: [{SAME}]}}\n", 1, "http.tokens", "a and b have the same hash", None),
        (f"http: {{jwt: {JWT}}}\n", 1, "http.jwt.issuer", "contains |", None),
        ("run: {timeout_s: 0}\n", 1, "run.timeout_s", "must be more than 0", None),
        ("run: {memory_mb: -5}\n", 1, "run.memory_mb", "must be at least 1", None),
        ("results: {ttl_s: .nan}\n", 1, "results.ttl_s", "expected a number, got the number nan", None),
        ("stats: {retention_days: 0}\n", 1, "stats.retention_days", "must be at least 1", None),
        ("ask: {provider: gemni}\n", 1, "ask.provider", "expected anthropic, gemini", "did you mean gemini?"),
        ("ask: {max_steps: 0}\n", 1, "ask.max_steps", "must be at least 1", None),
        ("fs: {roots: .}\n", 1, "fs.roots", "expected a list, got the string '.'", "write a list: [value]"),
        ("packs: ['']\n", 1, "packs[0]", "this is not a path", "write the name of a file or a folder"),
        ("settings: {brave: 5}\n", 1, "settings.brave", "expected a mapping, got the number 5", None),
        ("aliases: {ws: [a]}\n", 1, "aliases.ws", "expected a string, got a list", None),
        ("snippets:\n  a:\n    description: x\n", 2, "snippets.a", "the key 'body' is missing", "add body: …"),
        ("snippets: {a: {body: x, params: {p: {type: text}}}}\n", 1, "snippets.a.params.p.type", "expected str", None),
        ("topics:\n  - pattern: x\n", 2, "topics[0]", "the key 'file' is missing", "add file: …"),
        ("allowedHosts: [{hots: x, host: y}]\n", 1, "allowedHosts[0].hots", "unknown key", "did you mean host?"),
        ("allowedHosts: ['']\n", 1, "allowedHosts[0].host", "must not be empty", None),
        ("servers: {a: {command: x}}\nmcpServers: {a: {command: y}}\n", 2, "mcpServers.a", "two places", None),
        ("settings: {a: {1: x}}\n", 1, "settings.a", "a key must be a string, but 1 is not", 'quote it: "1"'),
        ("prompts: [a]\n", 1, "prompts", "expected a path, got a list", None),
    ],
)  # fmt: skip
def test_mistakes(
    text: str, line: int, key: str, message: str, hint: str | None, mistake: OneMistake, tmp_path: Path
) -> None:
    found = mistake(text)
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), line, key)
    assert message in found.message
    assert hint is None or found.hint == hint


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "hint"),
    [
        ("servers: {a: {}}\n", 1, "servers.a", "a server needs a command or a url", "add command: … or url: …"),
        ("servers:\n  a: {command: x, url: y}\n", 2, "servers.a.url", "not both", "remove one of them"),
        ("servers: {a: {command: x, env: {N: 5}}}\n", 1, "servers.a.env.N", "a string, got a number", "quote it"),
        ("servers: {a: {command: x, timeout: 0}}\n", 1, "servers.a.timeout", "must be more than 0", None),
    ],
)  # fmt: skip
def test_mistakes_of_a_server_are_its_own(
    text: str, line: int, key: str, message: str, hint: str | None, load: Load, tmp_path: Path
) -> None:
    config = load(f"{text}menu: direct\n")
    [found] = config.servers["a"].mistakes
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), line, key)
    assert message in found.message
    assert hint is None or found.hint == hint
    assert config.menu == "direct"


def test_all_mistakes_are_told_at_once(mistakes: Callable[..., tuple[Mistake, ...]]) -> None:
    found = mistakes("http: {port: x}\nmenu: x\nfoo: 1\ntools: 1\nsettings: {a: '${NO}'}\nmenu: y\n")
    assert [(mistake.line, mistake.key) for mistake in found] == [
        (1, "http.port"), (2, "menu"), (3, "foo"), (4, "tools"), (5, "settings.a"), (6, "menu"),
    ]  # fmt: skip


def test_an_anchor_that_is_used_often_brings_its_mistake_once(mistake: OneMistake) -> None:
    assert mistake("settings: {a: &a {x: {k: 1, k: 2}}, b: *a, c: *a}\n").key == "settings.a.x.k"


def test_unknown_keys_of_a_server_are_warnings(load: Load) -> None:
    config = load("servers:\n  a:\n    command: x\n    comand: y\n    alwaysAllow: [y]\n")
    assert [(warning.line, warning.key, warning.severity) for warning in config.warnings] == [
        (4, "servers.a.comand", "warning"),
        (5, "servers.a.alwaysAllow", "warning"),
    ]
    assert config.warnings[0].hint == "did you mean command?"


def test_a_server_in_full(load: Load, tmp_path: Path) -> None:
    config = load("""
servers:
  a: {type: stdio, command: x, args: [-v], env: {K: v}, cwd: sub, timeout: 5, enabled: false,
      tools: [t], prefix: p, pin: true}
  b: {url: "http://h/mcp", headers: {A: b}, auth: {type: bearer, value: v}, tools: [], }
  c: {url: "http://h/mcp", auth: oauth, tools: , disabled: true}
""")
    a, b, c = config.servers.values()
    assert (a.command, a.args, a.env, a.cwd, a.timeout) == ("x", ("-v",), {"K": "v"}, tmp_path / "sub", 5.0)
    assert (a.enabled, a.tools, a.prefix, a.pin, a.type) == (False, ("t",), "p", True, "stdio")
    assert (b.headers, b.auth, b.tools, b.pin) == ({"A": "b"}, {"type": "bearer", "value": "v"}, (), False)
    assert (c.auth, c.tools, c.enabled) == ("oauth", None, False)
    assert config.warnings == ()


def test_a_block_of_another_client_as_it_is(load: Load) -> None:
    pasted = '{\n  "mcpServers": {\n    "a": {"command": "x", "args": ["-v"]}\n  }\n}'
    assert load(pasted).servers["a"].args == ("-v",)
    both = load("servers: {a: {command: x}}\nmcpServers: {b: {url: 'http://h/mcp'}}\n").servers
    assert list(both) == ["a", "b"]


def test_a_config_in_json(load: Load) -> None:
    assert load('{\n\t"http": {"port": 1},\n\t"aliases": {"a": "b\\u00e9"}\n}').aliases == {"a": "bé"}


def test_state_can_be_moved(load: Load, tmp_path: Path) -> None:
    assert load("", {"ONETOOL_HOME": str(tmp_path / "state")}).home == tmp_path / "state"


def test_a_relative_config_is_relative_to_the_working_folder(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("packs: [p]\n")
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("onetool.yaml"), env={})
    assert (config.path, config.packs) == (tmp_path / "onetool.yaml", (tmp_path / "p",))


def test_a_config_can_not_be_changed() -> None:
    config: Any = load_config(None, env={"HOME": "/home/me"})
    with pytest.raises(AttributeError):
        config.menu = "search"


# A busy or fresh machine (hypothesis collects Unicode's characters once) is not a mistake of ours.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["${A}", "${B}", "no"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["host", "command", "url", "port", "body"]), children)
    ),
    max_leaves=8,
)


@patient
@given(st.dictionaries(st.sampled_from(sorted(set(fields_of(Keys)) - {"include", "secrets"})), values, max_size=4))
def test_whatever_stands_there_gives_a_config_or_its_mistakes(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(json.dumps(content))
    try:
        told = repr(load_config(path, env={"A": "sesame"}))
    except ConfigError as error:
        told = str(error)
    assert told
    assert "sesame" not in told


def test_a_database_and_the_key_of_replicas(tmp_path):
    key = "k" * 32
    text = f"database: postgresql://me:hunter2@db/onetool\ncluster: {{key: {key}}}\n"
    (tmp_path / "onetool.yaml").write_text(text)
    config = load_config(tmp_path / "onetool.yaml")
    assert str(config.database) == "postgresql://me:hunter2@db/onetool"
    assert config.warnings == ()
    assert "hunter2" not in repr(config)
    assert key not in repr(config)


def test_the_address_of_a_replica_has_no_effect_any_more(tmp_path):
    text = f"cluster: {{address: '${{REPLICA_ADDRESS}}', key: {'k' * 32}}}\n"
    (tmp_path / "onetool.yaml").write_text(text)
    (warning,) = load_config(tmp_path / "onetool.yaml", env={}).warnings
    assert warning.message == "the key 'address' has no effect any more"
    assert warning.hint.startswith("remove it: replicas send each other no requests")


def test_a_short_key_of_a_cluster_is_refused(tmp_path):
    (tmp_path / "onetool.yaml").write_text("cluster: {key: short}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "onetool.yaml")
    assert "at least 32 characters" in str(refused.value)
