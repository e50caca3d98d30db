"""The texts of clients' files with one more server in them: everything else stays, letter by letter."""

import json
import tomllib

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.config.client_files import EditError, read_json
from onetool.interfaces.cli.clients import put_json, put_toml

ENTRY = {"command": "onetool", "args": ["mcp"]}
WHOLE = """\
{
  "mcpServers": {
    "onetool": {
      "command": "onetool",
      "args": ["mcp"]
    }
  }
}"""


def put(text, entry=ENTRY, force=False):
    return put_json(text, "mcpServers", "onetool", entry, force=force)


def toml(text, entry=ENTRY, force=False):
    return put_toml(text, "mcp_servers", "onetool", entry, force=force)


# JSON


def test_comments_other_servers_and_layout_stay():
    before = """\
// my servers
{
    "theme": "dark", /* not light */
    "mcpServers": {
        // the clock
        "clock": {"command": "clock"}, // ticks
        "docs": {
            "url": "https://example.com//mcp" // no comment in here
        } // the last one
        // and no more
    },
    "more": [1, 2,], // trailing
}
"""
    after = """\
// my servers
{
    "theme": "dark", /* not light */
    "mcpServers": {
        // the clock
        "clock": {"command": "clock"}, // ticks
        "docs": {
            "url": "https://example.com//mcp" // no comment in here
        }, // the last one
        // and no more
        "onetool": {
            "command": "onetool",
            "args": ["mcp"]
        }
    },
    "more": [1, 2,], // trailing
}
"""
    assert put(before) == after
    assert put(after) == after


@each(
    ("before", "after"),
    [
        ("", WHOLE + "\n"),
        ("{}", WHOLE),
        (
            '{"a": 1}',
            '{"a": 1, "mcpServers": {"onetool": {"command": "onetool", "args": ["mcp"]}}}',
        ),
        (
            '{"mcpServers": {"a": {}}}\n',
            '{"mcpServers": {"a": {}, "onetool": {"command": "onetool", "args": ["mcp"]}}}\n',
        ),
        (
            '{\n\t"mcpServers": {}\n}',
            WHOLE.replace("  ", "\t"),
        ),
        (
            '{\r\n  "mcpServers": {\r\n    "a": {},\r\n  }\r\n}',
            '{\r\n  "mcpServers": {\r\n    "a": {},\r\n    "onetool": {\r\n      "command": "onetool",\r\n'
            '      "args": ["mcp"]\r\n    }\r\n  }\r\n}',
        ),
        (
            '{\n  "mcpServers": { // none yet\n  }\n}',
            '{\n  "mcpServers": { // none yet\n    "onetool": {\n      "command": "onetool",\n'
            '      "args": ["mcp"]\n    }\n  }\n}',
        ),
    ],
)
def test_layouts(before, after):
    assert put(before) == after
    assert put(after) == after


def test_force_replaces_the_one_entry():
    before = '{\n  "mcpServers": {\n    "onetool": {\n      "url": "x" // old\n    }, // mine\n    "b": {}\n  }\n}'
    with pytest.raises(EditError, match="--force"):
        put(before)
    after = before.replace('"url": "x" // old\n', '"command": "onetool",\n      "args": ["mcp"]\n')
    assert put(before, force=True) == after


@each(
    ("text", "told"),
    [
        ("{", "line 1, column 2: expected a name in double quotes"),
        ("{a: 1}", "line 1, column 2: expected a name in double quotes"),
        ('{"a" 1}', "line 1, column 6: expected ':'"),
        ('{"a": 1\n"b": 2}', "line 2, column 1: expected ',' or '}'"),
        ('{"a": [1 2]}', "line 1, column 10: expected ',' or ']'"),
        ('{"a": nul}', "line 1, column 7: expected a value"),
        ('{"a": NaN}', "line 1, column 7: this is not a JSON value"),
        ('{"a": "x\n"}', "line 1, column 9: invalid control character"),
        ('{"a": "x}', "line 1, column 7: unterminated string"),
        ('{"a": 1} x', "line 1, column 10: expected the end of the file"),
        ('{"a": 1 /* }', "line 1, column 9: expected ',' or '}'"),
        ('{"a": ' + "[" * 100_000, "levels deep"),
        ('{"a": ' + "1" * 5000 + "}", "not a JSON value"),
        ("{,}", "line 1, column 2: expected a name"),
        ('{"a": 1,,}', "line 1, column 9: expected a name"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text, told):
    with pytest.raises(EditError) as caught:
        put(text)
    assert told in str(caught.value)


@given(st.text(alphabet='{}[]",:/*\\ \n\rabc1.-', max_size=60))
def test_any_text_is_changed_well_or_refused(text):
    try:
        new = put(text)
    except EditError:
        return
    assert read_json(new).root.data["mcpServers"]["onetool"] == ENTRY


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "//", "/*", '"', "}", ",", "\\", "ä"])
GAPS = st.sampled_from(["", " ", "\n", "\r\n", "\t", " // x\n", "/* , */", '\n  // "y": {\n  ', "/**/"])


def objects(inner):
    return st.dictionaries(st.sampled_from(["a", "b", "mcp", "//", "\\"]), inner, max_size=3)


DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8)


@given(DATA, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_others_write_is_read(data, indent, ensure_ascii):
    assert read_json(json.dumps(data, indent=indent, ensure_ascii=ensure_ascii)).root.data == data


@st.composite
def files(draw):
    """A file as somebody may have written it: (text, data)."""
    data = draw(objects(DATA))
    if draw(st.booleans()):
        data["mcpServers"] = draw(objects(objects(SCALARS)))
    return draw(GAPS) + written(draw, data) + draw(GAPS), data


def written(draw, data):
    gap = lambda: draw(GAPS)  # noqa: E731
    if isinstance(data, dict):
        parts = [f"{gap()}{json.dumps(key)}{gap()}:{gap()}{written(draw, value)}{gap()}" for key, value in data.items()]
    elif isinstance(data, list):
        parts = [f"{gap()}{written(draw, value)}{gap()}" for value in data]
    else:
        return json.dumps(data)
    trailing = "," if parts and draw(st.booleans()) else ""
    left, right = "{}" if isinstance(data, dict) else "[]"
    return left + ",".join(parts) + trailing + gap() + right


@given(files())
def test_whatever_stands_in_a_file_stays(file):
    text, data = file
    new = put(text)
    after = read_json(new)
    assert after.root.data == {**data, "mcpServers": {**data.get("mcpServers", {}), "onetool": ENTRY}}
    assert [comment for _, comment in after.comments] == [comment for _, comment in read_json(text).comments]
    remaining = iter(new)
    assert all(char in remaining for char in "".join(text.split())), "every letter is still there, in its order"
    assert put(new) == new
    other = put(new, {"url": "http://x"}, force=True)
    assert read_json(other).root.data["mcpServers"]["onetool"] == {"url": "http://x"}


# TOML


OTHERS = """\
# mine
model = "x" # the model

[mcp_servers.clock] # ticks
command = "clock"
args = []

[mcp_servers.clock.env]
TZ = "UTC"
"""


def test_a_table_is_appended():
    after = toml(OTHERS)
    assert after == OTHERS + '\n[mcp_servers.onetool]\ncommand = "onetool"\nargs = ["mcp"]\n'
    assert toml(after) == after
    assert toml("") == '[mcp_servers.onetool]\ncommand = "onetool"\nargs = ["mcp"]\n'
    assert toml("a = 1") == 'a = 1\n\n[mcp_servers.onetool]\ncommand = "onetool"\nargs = ["mcp"]\n'
    assert toml("a = 1\r\n").count("\r\n") == toml("a = 1\r\n").count("\n") == 5


@pytest.mark.parametrize("header", ["mcp_servers.onetool", " \"mcp_servers\" . 'onetool' "])
def test_force_replaces_the_one_table_in_its_place(header):
    before = f"{OTHERS}\n[{header}]\nurl = 'x' # old\n\n[{header}.env]\nA = '1'\n\n# of tools\n[tools]\nx = 1\n"
    with pytest.raises(EditError, match="--force"):
        toml(before)
    assert toml(before, force=True) == (
        f'{OTHERS}\n[mcp_servers.onetool]\ncommand = "onetool"\nargs = ["mcp"]\n\n# of tools\n[tools]\nx = 1\n'
    )


@each(
    ("text", "told"),
    [
        ("a =\n", "line 1, column 4"),
        ("a = 1\na = 2\n", "line 2"),
        ("mcp_servers = {a = {}}\n", "can't be edited automatically"),
        ("mcp_servers = 1\n", "not a table"),
        ("[[mcp_servers]]\n", "not a table"),
        ("mcp_servers = {onetool = {}}\n", "can't be edited automatically"),
        ("[mcp_servers]\nonetool = {}\n", "can't be edited automatically"),
        ('[mcp_servers.onetool]\nx = """\n[other]\n"""\n', "can't be edited automatically"),
    ],
)
def test_toml_that_is_left_alone(text, told):
    with pytest.raises(EditError) as caught:
        toml(text, force=True)
    assert told in str(caught.value)


@given(st.text(max_size=20))
def test_any_path_is_written_so_that_it_is_read_back(path):
    entry = {"command": path, "args": ["mcp", "--config", path]}
    try:
        assert tomllib.loads(toml(OTHERS, entry))["mcp_servers"]["onetool"] == entry
    except EditError:
        assert not path.isprintable()  # TOML has no raw DEL, and no lone surrogates
    assert json.loads(put("{}", entry))["mcpServers"]["onetool"] == entry
