"""Checked before the first effect: what is literally wrong with a call of a tool is told, and nothing has run.

And never more than that: what the call itself would take is let go. Both are held against the executor, for any schema.
"""

import json
from functools import partial

import pytest
from helpers import each, examples, executor_for, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool import Registry, ToolSpec
from onetool.core.errors import DefinitionError
from onetool.core.signature import arguments_by_name, as_identifier
from onetool.script.check import check, findings_text
from onetool.script.names import ScriptNames
from onetool.script.parse import CodeScan
from onetool.script.rewrite import MODULES

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
POINT = {"type": "object", "properties": {"x": NUMBER, "y": NUMBER}, "required": ["x"], "additionalProperties": False}


TOOLS = {
    "note.add": (
        {"text": TEXT, "level": {"enum": ["low", "high"]}, "tags": {"type": "array", "items": TEXT}},
        "text",
    ),
    "note.list": ({}, ""),
    "map.draw": ({"point": POINT, "from": POINT, "max-size": NUMBER}, "point"),
    "12306-mcp.get-date": ({"day": NUMBER}, ""),
    "class.import": ({"a": NUMBER}, "a"),
    "größe.maß": ({"weiß": NUMBER}, ""),
    "solo": ({"n": NUMBER}, "n"),
}


class Catalogue:
    """A few tools that write down their calls."""

    def __init__(self, scripts):
        self.calls = []
        self.scripts = scripts
        for name, (properties, required) in TOOLS.items():
            scripts.tool(name, partial(self._called, name), *required.split(), **properties)

    def _called(self, name, **args):
        self.calls.append(name)
        return args

    def refused(self, code):
        """What is told of wrong code; and the call before it was not made."""
        self.calls.clear()
        error = self.scripts.error(f"note.list()\n{code}")
        assert (error.code, error.reason) == ("invalid_args", "check"), error
        assert self.calls == []
        return error


@pytest.fixture(scope="module")
def catalogue(scripts_for_module):
    return Catalogue(scripts_for_module)


def shown(error):
    return " | ".join((error.message, *error.hints))


# What is wrong

WRONG = {
    "an unknown pack": ("notes.add(text='a')", "line 2: there is no pack notes; did you mean note?"),
    "a pack like nothing": ("xyzzy.add(text='a')", "line 2: there is no pack xyzzy"),
    "an unknown tool": ("note.ad(text='a')", "line 2: note.ad: there is no such tool; did you mean note.add?"),
    "a tool like nothing": ("note.xyzzy()", "line 2: note.xyzzy: there is no such tool; it has note.add, note.list"),
    "a pack that is called": ("note()", "line 2: note is a pack; it has note.add, note.list"),
    "a tool used as a pack": ("solo.add(n=1)", "line 2: there is no pack solo; solo() is a tool"),
    "an unknown function": ("sollo(n=1)", "line 2: sollo is not defined; did you mean solo?"),
    "a mistyped builtin": ("prnt(1)", "line 2: prnt is not defined; did you mean print?"),
    "a missing argument": (
        "note.add()",
        "line 2: note.add: text: expected a value (required), got nothing | "
        "note.add(text: str, level: Literal['low', 'high'] = '...', tags: list[str] = '...')",
    ),
    "missing beside a variable": (
        "x = 'low'\nnote.add(level=x)",
        "line 3: note.add: text: expected a value (required), got nothing | note.add(",
    ),
    "an unknown argument": ("solo(n=1, m=2)", "line 2: solo: m: unknown argument | solo(n: int)"),
    "a mistyped argument": ("note.add(txt='a', text='b')", "note.add: txt: unknown argument (did you mean text?) |"),
    "unknown beside a variable": ("x = 1\nsolo(n=x, m=x)", "line 3: solo: m: unknown argument | solo(n: int)"),
    "unknown beside **": ("x = {}\nsolo(m=1, **x)", "line 3: solo: m: unknown argument | solo(n: int)"),
    "a wrong type": ("note.add(text=5)", "line 2: note.add: text: expected a string, got the number 5 |"),
    "wrong beside a variable": ("x = 'a'\nnote.add(text=x, tags='b')", "tags: expected a list, got the string 'b' |"),
    "wrong beside **": (
        "x = {}\nnote.add(text=5, **x)",
        "line 3: note.add: text: expected a string, got the number 5 |",
    ),
    "not one of them": (
        "note.add(text='a', level='mid')",
        "level: expected one of 'low', 'high', got the string 'mid' |",
    ),
    "wrong inside": ("note.add(text='a', tags=['b', 3])", "tags[1]: expected a string, got the number 3 |"),
    "wrong in an object": ("map.draw(point={'x': 'a'})", "point.x: expected a whole number, got the string 'a' |"),
    "missing in an object": ("map.draw(point={'y': 1})", "point.x: expected a value (required), got nothing |"),
    "unknown in an object": ("x = 1\nmap.draw(point={'x': 1, 'z': 2}, max_size=x)", "point.z: unknown argument |"),
    "a negative number": ("note.add(text=-1)", "text: expected a string, got the number -1 |"),
    "a tuple": ("note.add(text=('a',))", "text: expected a string, got a list of 1 item |"),
    "too many": ("solo(1, 2)", "line 2: solo: takes at most 1 arguments, got 2 | solo(n: int)"),
    "twice": ("solo(1, n=2)", "line 2: solo: got n twice | solo(n: int)"),
    "by position": ("note.add(5)", "line 2: note.add: text: expected a string, got the number 5 |"),
    "by another name": ("f = note.add\nf(txt='a')", "line 3: note.add: "),
    "an argument that Python can't say": (
        "map.draw(point={'x': 1}, from_=5)",
        "map.draw: from: expected an object, got",
    ),
    "another one": (
        "map.draw(point={'x': 1}, max_size='a')",
        "max-size: expected a whole number, got the string 'a' | map.draw(",
    ),
    "an odd pack": (
        "_12306_mcp.get_date(day='a')",
        "day: expected a whole number, got the string 'a' | _12306_mcp.get_date(day: int",
    ),
    "an odd tool": (
        "_12306_mcp.get_dat()",
        "_12306_mcp.get_dat: there is no such tool; did you mean _12306_mcp.get_date?",
    ),
    "keywords": (
        "class_.import_()",
        "class.import: a: expected a value (required), got nothing | class_.import_(a: int)",
    ),
    "Unicode": ("größe.maß(weiß='a')", "weiß: expected a whole number, got the string 'a' | größe.maß(weiß: int"),
    "called by name": ("ot.call('note.ad')", "line 2: there is no tool 'note.ad'; did you mean note.add?"),
    "called by name with arguments": (
        "ot.call('note.add', {'text': 5})",
        "note.add: text: expected a string, got the number 5",
    ),
    "called by name without": ("ot.call('solo')", "line 2: solo: n: expected a value (required), got nothing"),
    "in a function": ("def f():\n    return note.ad()\n1", "line 3: note.ad: there is no such tool"),
    "in an argument": ("note.add(text=note.ad())", "line 2: note.ad: there is no such tool"),
    "awaited": ("await note.ad()", "line 2: note.ad: there is no such tool"),
    "in a text": ("f'{note.ad()}'", "note.ad: there is no such tool"),
}


@each("name", WRONG)
def test_what_is_wrong_is_told_before_anything_has_run(catalogue, name):
    code, message = WRONG[name]
    error = catalogue.refused(code)
    assert message in shown(error)
    assert (len(error.message) + sum(map(len, error.hints))) / 4 < 120


def test_everything_is_told_at_once(catalogue):
    error = catalogue.refused("note.ad()\nsolo(n='a')\nnotes.add()\nsolo(n=1, m=1)")
    assert error.message == (
        "line 2: note.ad: there is no such tool; did you mean note.add?; "
        "line 3: solo: n: expected a whole number, got the string 'a'; "
        "line 4: there is no pack notes; did you mean note?; "
        "line 5: solo: m: unknown argument"
    )
    assert error.hints == ("solo(n: int)",)


def test_of_many_the_first_are_told(catalogue):
    error = catalogue.refused("note.xyzzy()\n" * 50)
    assert error.message.count("note.xyzzy:") == 4
    assert error.message.endswith("; and 46 more")
    assert (len(error.message) + sum(map(len, error.hints))) / 4 < 120


def test_any_mistake_with_a_real_tool_is_told_shortly(live_tools):
    registry = Registry()
    for tool in live_tools:
        registry.add(ToolSpec(name=tool["name"], description="d", input_schema=tool["inputSchema"]))
    names = ScriptNames(registry.snapshot())
    for spec in registry:
        message, hints = findings_text(check(CodeScan(f"{names.spelling(spec)}(nonsense=1)"), names, MODULES), names)
        assert message.startswith(f"line 1: {spec.name}: ")
        assert hints
        assert hints[0].startswith(f"{names.spelling(spec)}(")
        assert (len(message) + sum(map(len, hints))) / 4 < 120


def test_a_tool_that_is_not_allowed(catalogue):
    error = catalogue.scripts.error("note.add(text='a')\nsolo(n=1)", allowed=["solo"])
    assert (error.reason, error.message) == ("check", "line 1: note.add is not allowed here")


# What is let go

FINE = {
    "**": "x = {'n': 1}\nsolo(**x)",
    "*": "x = [1]\nsolo(*x)",
    "a variable": "x = 1\nsolo(n=x)",
    "a sum": "solo(n=1 + 1)",
    "by position": "solo(1)",
    "an odd argument": "map.draw(point={'x': 1}, from_={'x': 2}, max_size=3)",
    "an odd argument by **": "map.draw(point={'x': 1}, **{'from': {'x': 2}, 'max-size': 3})",
    "a tuple for an array": "note.add('a', tags=('b', 'c'))",
    "a whole number with a point": "solo(n=1.0)",
    "called by name": "ot.call('solo', {'n': 1})",
    "called by a name that only the run knows": "x = 'solo'\not.call(x, {'n': 1})",
    "called by name with ** inside": "x = {'n': 1}\not.call('solo', {**x})",
    "called by name with keywords": "ot.call('solo', n=1)",
    "a missing tool that is only named": "x = 'note.ad()'",
    "a module": "import json\njson.dumps({})",
    "a method of a text": "x = 'a'\nx.upper()",
    "a chain": "note.add(text='a').get('text')",
    "a parameter": "def f(note):\n    return note.xyzzy()\n1",
    "a parameter of a lambda": "f = lambda solo: solo('a', 'b')\n1",
    "a keyword-only parameter": "def f(*, solo=len):\n    return solo([])\nf()",
    "a loop": "for note in ['a']:\n    note.upper()",
    "a function": "def solo(a, b):\n    return a + b\nsolo('a', 'b')",
    "a class": "class note:\n    def xyzzy(self):\n        return 1\nnote().xyzzy()",
    "an import as": "import json as note\nnote.dumps({})",
    "a from import": "from json import dumps as solo\nsolo({}, indent=None)",
    "an exception": "try:\n    1 / 0\nexcept ZeroDivisionError as note:\n    note.xyzzy if 0 else 1",
    "a pattern": "match [1]:\n    case [solo]:\n        x = lambda: solo('a')\n1",
    "a pattern for the rest": "match {'a': 1}:\n    case {**note}:\n        note.get('a')",
    "a starred pattern": "match [1]:\n    case [*note]:\n        note.index(1)",
    "a comprehension": "[note.upper() for note in 'ab']",
    "a walrus": "(note := 'a').upper(), note.upper()",
    "a global": "def f():\n    global note\n    note = 'a'\nf()\nnote.upper()",
    "a tuple": "note, solo = 'a', len\nsolo(note.upper())",
    "another meaning somewhere": "def f():\n    note = 'a'\n    return note.upper()\nf()",
    "an alias with two meanings": "f = note.add\nf = len\nf([1])",
    "a tool for its own name": "f = solo\nf(n=1)",
    "import of a pack": "import note\nnote.add(text='a')",
    "import of a tool": "from note import add\nadd(text='a')",
    "names of a star": "from statistics import *\nmean([1, 2])",
    "names of a pack's star": "from note import *\nadd(text='a')",
    "names from elsewhere": "exec('helper = len')\nhelper if 0 else 1",
}


@each("name", FINE)
def test_what_may_be_right_is_let_go(catalogue, name):
    catalogue.scripts.value(FINE[name])


@each("word", ["exec", "eval", "globals", "setattr", "__import__"])
def test_code_that_can_make_names_may_call_any(word):
    names = ScriptNames(Registry().snapshot())
    assert check(CodeScan("helper()\nnopack.tool()"), names, MODULES)
    assert check(CodeScan(f"{word}\nhelper()\nnopack.tool()"), names, MODULES) == []


def test_code_that_only_the_sandbox_can_parse_is_let_go():
    assert check(CodeScan("note.ad( ("), ScriptNames(Registry().snapshot()), MODULES) == []


def test_a_schema_that_can_not_be_used_is_told_when_the_call_is_made():
    registry = Registry()
    registry.add(ToolSpec(name="t", description="d", input_schema={"type": "object", "properties": {"a": {"type": 5}}}))
    assert check(CodeScan("t(a=1)\nx = 1\nt(a=1, b=x)"), ScriptNames(registry.snapshot()), MODULES) == []


ALONE = {
    "whatever else": ({"additionalProperties": {}}, "t(a=1, other=x)"),
    "the schema itself": ({"properties": {"a": {"type": "array", "items": {"$ref": "#"}}, "b": {}}}, "t(a=[{}], b=x)"),
    "another argument": ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}}, "t(a=1, b=x)"),
    "definitions of its own": (
        {"$defs": {"d": {}}, "properties": {"a": {"$defs": {"d": False}, "$ref": "#/$defs/d"}, "b": {}}},
        "t(a=1, b=x)",
    ),
    "something with an anchor": (
        {"$defs": {"d": {"$anchor": "here"}}, "properties": {"a": {"$ref": "#here"}, "b": {}}},
        "t(a=1, b=x)",
    ),
}


@each("name", ALONE)
def test_an_argument_whose_schema_speaks_of_more_than_itself(name):
    schema, call = ALONE[name]
    spec = ToolSpec(name="t", description="d", input_schema={"type": "object", "properties": {"a": {}}, **schema})
    assert spec.arguments.check(eval(call.replace("t(", "dict("), {"x": 1})) == []
    assert findings(spec, f"x = 1\n{call}") == []


# Any schema, any call: the check says what the executor says, as far as it can know

WORDS = st.sampled_from(["a", "b", "from", "max-size", "password"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -2, 0.5, 1.0, "", "x", "y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def arrays(inner):
    return st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.just(1)})


def objects(inner):
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(WORDS, inner, max_size=2)},
        optional={"required": st.lists(WORDS, max_size=1), "additionalProperties": st.booleans() | inner},
    )


LEAVES = st.one_of(
    st.builds(dict, type=TYPES),
    st.builds(dict, type=st.lists(TYPES, min_size=1, max_size=2, unique=True)),
    st.builds(dict, enum=st.lists(VALUES, min_size=1, max_size=2)),
    st.builds(dict, type=TYPES, default=VALUES),
    st.just({}),
    st.booleans(),
    st.sampled_from([{"$ref": "#/$defs/d"}, {"$ref": "#/$defs/e"}, {"$ref": "#/properties/a"}, {"$ref": "#"}]),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        arrays(inner),
        objects(inner),
        st.builds(
            lambda word, parts: {word: parts},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=2),
        ),
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda part: {"$defs": {"d": part}, "$ref": "#/$defs/d"}, inner),
    ),
    max_leaves=4,
)
ROOTS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(WORDS, SCHEMAS, max_size=4)},
    optional={
        "required": st.lists(WORDS, max_size=2, unique=True),
        "additionalProperties": st.booleans() | st.just({}) | SCHEMAS,
        "description": st.just("a tool"),
    },
)
# What makes the fate of one argument depend on others; rare in the wild, and so here.
ENTANGLING = st.one_of(
    st.builds(dict, anyOf=st.lists(objects(LEAVES), min_size=1, max_size=2)),
    st.builds(dict, allOf=st.lists(objects(LEAVES), min_size=1, max_size=2)),
    st.builds(dict, dependentRequired=st.dictionaries(WORDS, st.lists(WORDS, max_size=1), max_size=1)),
    st.builds(dict, dependentSchemas=st.dictionaries(WORDS, objects(LEAVES), max_size=1)),
    st.builds(dict, patternProperties=st.builds(lambda part: {"^m": part}, LEAVES)),
    st.builds(dict, minProperties=st.just(2)),
    st.builds(dict, maxProperties=st.just(1)),
    st.builds(dict, propertyNames=st.just({"maxLength": 4})),
    st.builds(dict, unevaluatedProperties=st.booleans()),
    st.builds(dict, **{"$ref": st.sampled_from(["#/$defs/d", "#/$defs/e"])}),
    st.builds(lambda one, other: {"if": one, "then": other}, objects(LEAVES), objects(LEAVES)),
)


@st.composite
def specs(draw):
    root = draw(ROOTS)
    if draw(st.integers(0, 3)) == 0:
        root |= draw(ENTANGLING)
    root["$defs"] = {"d": draw(LEAVES), "e": draw(objects(LEAVES))}
    try:
        return Registry().register(ToolSpec(name="t", description="d", input_schema=root, handler=lambda **_: None))
    except DefinitionError:  # such as a reference that leads nowhere
        return Registry().register(ToolSpec(name="t", description="d", handler=lambda **_: None))


@st.composite
def calls(draw, literal_only):
    """A tool, the text of a call of it, and what the call gives: by position and by name."""
    spec = draw(specs())
    fitting = {name: values_for(spec, name) for name in spec.order}
    named = {}
    for name in dict.fromkeys([*spec.order, *draw(st.lists(WORDS | st.just("nonsense"), max_size=1))]):
        if draw(st.integers(0, 5)):
            named[name] = draw(st.sampled_from(fitting.get(name) or [1]) if draw(st.integers(0, 4)) else VALUES)
    first = draw(st.integers(0, 2)) == 0
    args = []
    if first:
        for name in spec.order:
            if name not in named:
                break
            args.append(named.pop(name))
    lines, parts, more = [], [], {}

    def said(value):
        if literal_only or draw(st.booleans()):
            return repr(tuple(value) if isinstance(value, list) and len(value) == 2 else value)
        lines.append(f"v{len(lines)} = {value!r}")
        return f"v{len(lines) - 1}"

    parts += [said(value) for value in args]
    for name, value in named.items():
        if not literal_only and draw(st.integers(0, 5)) == 0:
            more[name] = value
        elif as_identifier(name) == name or name in spec.order:
            parts.append(f"{as_identifier(name)}={said(value)}")
        else:  # code can't say what nobody knows
            more[name] = value
    if more and not literal_only:
        parts.append(f"**{more!r}")
    elif more:
        named = {name: value for name, value in named.items() if name not in more}
    return spec, "\n".join([*lines, f"t({', '.join(parts)})"]), args, named


SAMPLES = [None, True, 0, 1, -2, 0.5, "", "x", [], [1], ["x"], {}, {"a": 1}, {"a": "x"}, {"b": None}]


def values_for(spec, name):
    """Some values that this argument takes, so that not every call is wrong."""
    return [
        value for value in SAMPLES if not any(one.path.startswith(name) for one in spec.arguments.check({name: value}))
    ]


def accepts(spec, args, named):
    """Whether the real executor runs the real call."""
    try:
        given = arguments_by_name(spec, args, named)
    except TypeError:
        return False
    return run(executor_for(spec.handler, spec.input_schema), "t", **given).ok


def findings(spec, code):
    registry = Registry()
    registry.add(spec)
    return check(CodeScan(code), ScriptNames(registry.snapshot()), MODULES)


MANY = settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@MANY
@given(calls(literal_only=False))
def test_what_the_executor_takes_the_check_lets_go(call):
    spec, code, args, named = call
    if accepts(spec, args, named):
        assert findings(spec, code) == [], json.dumps(dict(spec.input_schema), default=str)


@MANY
@given(calls(literal_only=True))
def test_of_literals_the_check_says_what_the_executor_says(call):
    spec, code, args, named = call
    assert (findings(spec, code) == []) == accepts(spec, args, named)


@pytest.mark.parametrize(
    "code",
    [
        "if False:\n    nobody(1)\n'ran'",
        "def never():\n    return nobody(1)\n'ran'",
        "x = None and nobody(1)\n'ran'",
        "f = lambda: nobody(1)\n'ran'",
        "[nobody(i) for i in []]\n'ran'",
        "try:\n    nobody(1)\nexcept NameError:\n    pass\n'ran'",
    ],
)
def test_a_name_that_is_nothing_is_let_go_where_nobody_may_come_by(scripts, code):
    assert scripts.value(code) == "ran"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import pandas", "line 2: there is no module pandas"),
        ("from statistic import mean", "did you mean statistics?"),
        ("import asyncio\nasyncio.create_task(t.add())", "there is no asyncio.create_task; await asyncio.gather"),
        ("import asyncio as a\nawait a.gather(t.add(), return_exceptions=True)", "wrap each call"),
    ],
)
def test_what_is_bound_to_fail_fails_before_tools_have_run(scripts, code, told):
    calls = []
    scripts.tool("t.add", lambda: calls.append(1))
    error = scripts.error(f"t.add()\n{code}")
    assert told in error.message
    assert calls == []
