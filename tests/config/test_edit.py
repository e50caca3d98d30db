"""Servers in the text of a config: what is added is all that changes, whatever the file looks like."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from difflib import ndiff
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import each
from hypothesis import example, given
from hypothesis import strategies as st

from onetool.config import load_config
from onetool.config.client_files import put_file
from onetool.config.edit import (
    drop_host,
    drop_server,
    put_host,
    put_servers,
    rename_server,
    servers_yaml,
    switch_server,
)
from onetool.config.read import ConfigFileError, parse
from onetool.config.starter import starter_config

TIME = {"command": "mcp-server-time", "args": ["--zone", "UTC"]}
IN_BRACES = '{command: mcp-server-time, args: ["--zone", "UTC"]}'
WRITTEN = '  time:\n    command: mcp-server-time\n    args: ["--zone", "UTC"]\n'


def data(text: str) -> Any:
    return parse(text).data


def is_the_old_text_with_more(old: str, new: str) -> bool:
    """Whether the old text stands in the new one with exactly one piece put in."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return new.endswith(old[same:]) and new.startswith(old[:same])


@each(
    ("old", "new"),
    [
        ("", "servers:\n" + WRITTEN),
        ("# mine\n", "# mine\nservers:\n" + WRITTEN),
        ("menu: run", "menu: run\n\nservers:\n" + WRITTEN[:-1]),
        ("menu: run\n# the end\n", "menu: run\n# the end\n\nservers:\n" + WRITTEN),
        ("menu: run\n...\n", "menu: run\n\nservers:\n" + WRITTEN + "...\n"),
        ("---\n", "---\nservers:\n" + WRITTEN),
        ("servers:\nmenu: run\n", "servers:\n" + WRITTEN + "menu: run\n"),
        ("servers: # none\n  # a: {}\nmenu: run\n", "servers: # none\n" + WRITTEN + "  # a: {}\nmenu: run\n"),
        ("servers: {} # none\nmenu: run\n", "servers: # none\n" + WRITTEN + "menu: run\n"),
        ("servers: ~", "servers:\n" + WRITTEN[:-1]),
        (
            "servers:\n  a: {command: x}  # the first\n\n# about the menu\nmenu: run\n",
            "servers:\n  a: {command: x}  # the first\n" + WRITTEN + "\n# about the menu\nmenu: run\n",
        ),
        (
            "servers:\n    a:\n        command: |\n            x\n\nmenu: run\n",
            "servers:\n    a:\n        command: |\n            x\n"
            + WRITTEN.replace("  ", "    ")
            + "\nmenu: run\n",
        ),
        (
            "servers: {a: {command: x, env: {T: ${T}}}} # all\nhttp: {token: ${T}}\n",
            'servers: {a: {command: x, env: {T: ${T}}}, time: ' + IN_BRACES + "} # all\nhttp: {token: ${T}}\n",
        ),
        ('{"menu": "run"}', '{"menu": "run", servers: {time: ' + IN_BRACES + "}}"),
        ("{}", "servers:\n" + WRITTEN[:-1]),
        ("a: &x {b: c}\nservers:\n  z: *x\nmenu: run\n", f"a: &x {{b: c}}\nservers:\n  z: *x\n{WRITTEN}menu: run\n"),
    ],
)  # fmt: skip
def test_one_is_added_and_nothing_else_changes(old: str, new: str) -> None:
    assert put_servers(old, {"time": TIME}) == new
    assert data(new)["servers"]["time"] == TIME
    back = drop_server(new, "time")
    assert (data(back)["servers"] or {}) == ((data(old) or {}).get("servers") or {})


def test_line_ends_stay_what_they_are() -> None:
    old = "menu: run\r\nservers:\r\n  a: {command: x}\r\n"
    new = put_servers(old, {"time": TIME})
    assert new == old + WRITTEN.replace("\n", "\r\n")
    assert drop_server(new, "time") == old


def test_edits_at_once_are_all_kept(tmp_path: Path) -> None:
    file, hosts = tmp_path / "onetool.yaml", [f"{n}.example" for n in range(8)]
    file.write_text("menu: run\n")
    with ThreadPoolExecutor(len(hosts)) as threads:
        changes = [partial(put_host, host=host, private=False) for host in hosts]
        assert all(threads.map(lambda change: put_file(file, change, private=False), changes))
    assert sorted(data(file.read_text())["allowedHosts"]) == hosts
    assert [one.name for one in tmp_path.iterdir()] == ["onetool.yaml"]


def test_the_starter_gets_them_at_its_end(write: Callable[..., Path]) -> None:
    old = starter_config()
    new = put_servers(old, {"time": TIME, "docs": {"url": "http://127.0.0.1:9/mcp"}})
    assert new.startswith(old)
    config = load_config(write(new), env={})
    assert list(config.servers) == ["time", "docs"]


def test_one_is_replaced_where_it_stands() -> None:
    old = "servers:\n  # first\n  a:\n    command: x # here\n  # second\n  b: {url: 'http://h'}\nmenu: run\n"
    new = put_servers(old, {"a": TIME, "c": {"url": "http://c"}})
    assert new == (
        "servers:\n  # first\n  a:\n    command: mcp-server-time\n"
        '    args: ["--zone", "UTC"]\n  # second\n  b: {url: \'http://h\'}\n'
        "  c:\n    url: http://c\nmenu: run\n"
    )
    assert put_servers("servers: {a: {command: x}, b: {url: y}}\n", {"a": {"command": "z"}}) == (
        "servers: {a: {command: z}, b: {url: y}}\n"
    )


def test_one_is_taken_out() -> None:
    old = "servers:\n  a: {command: x}\n  # kept\n  b:\n    args:\n      - y\n    command: x\n\nmenu: run\n"
    assert drop_server(old, "b") == "servers:\n  a: {command: x}\n  # kept\n\nmenu: run\n"
    assert drop_server("servers: {a: {command: x}, b: {url: y}}", "a") == "servers: {b: {url: y}}"
    assert drop_server("servers: {a: {command: x}, b: {url: y}}", "b") == "servers: {a: {command: x}}"
    assert drop_server("servers: {a: {command: x},}", "a") == "servers: {}"


@each(
    ("text", "why"),
    [
        ("- a\n", "must be a mapping"),
        ("servers: [a]\n", "servers must be a mapping"),
        ("servers: 5\n", "servers must be a mapping"),
        ("servers: {a: 1, a: 2}\n", "twice"),
        ("servers: [\n", "while parsing a flow node"),
        ('{\n\t"menu": "run",\n\t"servers": {\n\t\t"b": {"command": "x"}\n\t}\n}\n', "can't be edited automatically"),
        ("servers: {\n  b: {command: x},  # mine\n}\n", "can't be edited automatically"),
        ("servers: {}\n---\nservers: {}\n", "second document"),
        ("servers:\n\ta: {command: x}\n", "cannot start any token"),
    ],
)
def test_what_can_not_be_changed_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigFileError, match=why):
        put_servers(text, {"a": TIME})


def test_an_anchor_that_others_use_moves_to_them() -> None:
    old = "servers:\n  a: &x {command: y}\n  b: *x\n# end\n"
    assert drop_server(old, "a") == "servers:\n  b: {command: y}\n# end\n"
    with pytest.raises(ConfigFileError, match="can't be edited automatically"):
        switch_server(old, "b", False)  # a would be switched off, too
    merged = "base: &b {a: {command: x}}\nservers: {<<: *b}\n"
    assert put_servers(merged, {"a": {"command": "z"}}) == merged.replace("*b}", "*b, a: {command: z}}")
    with pytest.raises(ConfigFileError, match="can't be edited automatically"):
        drop_server(merged, "a")


ODD = """\
%YAML 1.2
---
# Größe: 日本語 😀
base:   &base
      timeout:  5
menu:     'run'   # quoted
text: >-
      a long text that
      goes on

      here

long: "{words}"
flow: { a: 1,   b: [ 1,2 ], token: ${{TOKEN}} }
list:
- x
-   y

servers:
   # the first one
   first:

      command:   "x"    # why
      env: {{ KEY: "Bearer ${{KEY}}", E: "\\u00e9" }}
      args: [
        a,  # one
        'b',
      ]

   # the second one
   second:
      <<: *base
      url:  http://h
      enabled:   yes   # for now

# the end
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_lines_of_the_change_differ(newline: str) -> None:
    old = ODD.replace("{words}", "word " * 100).replace("{{", "{").replace("}}", "}").replace("yes", "true")
    old = old.replace("\n", newline)

    def changes(new: str) -> tuple[list[str], list[str]]:
        lines = [line for line in ndiff(old.split(newline), new.split(newline)) if line[0] in "+-"]
        return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]

    assert changes(put_servers(old, {"third": {"command": "z"}})) == ([], ["   third:", "      command: z"])
    assert changes(switch_server(old, "first", False)) == ([], ["      enabled: false"])
    gone, new = changes(switch_server(old, "second", False))
    assert gone == ["      enabled:   true   # for now"]
    assert [" ".join(line.split()) for line in new] == ["enabled: false # for now"]
    without = old.split(newline)
    del without[without.index("   first:") : without.index("      ]") + 1]
    assert drop_server(old, "first") == newline.join(without)
    assert changes(put_host(old, "api.example.com", False)) == ([], ["allowedHosts: [api.example.com]", ""])


def test_among_servers_that_are_alike_each_keeps_its_comments() -> None:
    blocks = [f"  # about {name}\n  {name}:\n    command: npx\n\n    # set\n    timeout: 5\n" for name in "abcd"]
    old = "servers:\n" + "".join(blocks)
    for at, name in enumerate("abcd"):
        rest = [block if n != at else f"  # about {name}\n" for n, block in enumerate(blocks)]
        assert drop_server(old, name) == "servers:\n" + "".join(rest)
    assert put_servers(old, {"b": {"command": "npx", "timeout": 6}}) == old.replace(
        blocks[1], blocks[1].replace("timeout: 5", "timeout: 6")
    )
    assert put_servers(old, {"b": {"command": "npx", "timeout": 5}}) == old
    text = "servers:\n  a:\n    command: |\n      x\n\n      # y\n  # b\n  b: {command: z}\n"
    assert drop_server(text, "a") == "servers:\n  # b\n  b: {command: z}\n"


@each(
    ("old", "new"),
    [
        ("allowedHosts:\n- a\n# c\nmenu: run\n", "allowedHosts:\n- a\n- h\n# c\nmenu: run\n"),
        ("allowedHosts:\n    - a # x", "allowedHosts:\n    - a # x\n    - h"),
        ("allowedHosts: [a, H,]  # x\n", "allowedHosts: [a, h] # x\n"),
        ("allowedHosts: # x\nmenu: run\n", "allowedHosts: [h] # x\nmenu: run\n"),
        ("allowedHosts:\n- {host: h, allowPrivate: true}\n# c\n- b\n", "allowedHosts:\n# c\n- b\n- h\n"),
    ],
)
def test_a_host_is_put_behind_the_others(old: str, new: str) -> None:
    assert put_host(old, "h", False) == new
    assert data(drop_host(new, "h"))["allowedHosts"] == [one for one in data(new)["allowedHosts"] if one != "h"]


# Characters for private use stand for placeholders while a text is edited; texts with them are refused.
texts = st.text(st.characters(exclude_categories=("Cs", "Co")), max_size=12) | st.sampled_from(
    ["yes", "null", "1e3", "0x10", "-y", "a: b", "# c", "${X}", "Bearer ${X}", "a:", "~", "*x", "1:30", "...", "\x00"]
)
blocks = st.fixed_dictionaries(
    {"command": texts},
    optional={
        "args": st.lists(texts, max_size=30),
        "env": st.dictionaries(texts, texts, max_size=3),
        "timeout": st.integers(1, 99),
        "enabled": st.booleans(),
    },
)


@example({"a": {"command": ":0"}, ":b": {"command": "?c"}}, '{"servers": {"keep": {}}}')
@given(
    st.dictionaries(texts, blocks, min_size=1, max_size=3),
    st.sampled_from(
        [
            "",
            starter_config(),
            "servers: {}\n# end",
            "servers:\n  keep: {command: x}\n# end\nhttp: {token: ${T}}\n",
            '{"servers": {"keep": {}}}',
            "a: |+\n  text\n\n",
        ]
    ),
)
def test_whatever_the_servers_say_it_is_read_back(servers: dict[str, Any], old: str) -> None:
    before = data(old) or {}
    kept = {**(before.get("servers") or {}), **servers}
    new = put_servers(old, servers)
    assert data(new) == {**before, "servers": kept}
    assert (
        "keep" in servers
        or is_the_old_text_with_more(old.replace("{}", "", 1), new.replace("{}", "", 1))
        or "{}" in old
    )
    assert data(servers_yaml(servers)) == {"servers": servers}
    for name in servers:
        new = drop_server(new, name)
    assert (data(new).get("servers") or {}) == {
        k: v for k, v in (before.get("servers") or {}).items() if k not in servers
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "servers:\n  # a\n  a:   # one\n    command: x   # why\n  b: {}\n",
            "servers:\n  # a\n  c: # one\n    command: x   # why\n  b: {}\n",
        ),
        ('{"servers": {"a": {"command": "x"}, "b": {}}}', '{"servers": {c: {"command": "x"}, "b": {}}}'),
    ],
)  # fmt: skip
def test_a_renamed_server_stays_in_its_place(old: str, new: str) -> None:
    assert rename_server(old, "a", "c") == new
    with pytest.raises(ConfigFileError, match="already"):
        rename_server(old, "a", "b")
