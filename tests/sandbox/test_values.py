"""Values cross the border of the sandbox as plain data, both ways, and no more of them than the budget allows."""

import base64
import datetime
import json
from contextlib import suppress
from decimal import Decimal
from pathlib import PurePath

import pytest
from helpers import calls, each, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_monty import Monty

from onetool.sandbox import NeverAwaitedError, TooLargeError, TooManyDigitsError
from onetool.sandbox.messages import FunctionCall, NameLookup, Returned, WorkerLimits
from onetool.sandbox.pool import WorkerPool
from onetool.sandbox.wire import Function

BUDGET = 16 * 1024 * 1024
MAX_CALLS = 1_000_000  # what it would take otherwise is minutes


class Sandbox:
    """A session that answers no questions but one: what a tool is given is kept."""

    def __init__(self, session):
        self._session = session
        self.given = []

    def __call__(self, code, inputs=None, budget=BUDGET, check=None):
        return self.ended(code, inputs).value(budget, check)

    def ended(self, code, inputs=None):
        question = self._session.feed(code, inputs or {}, lambda _stream, _text: None)
        while isinstance(question, NameLookup | FunctionCall):
            if isinstance(question, NameLookup):
                question = self._session.resume_name(None)
            else:
                self.given.append(question.arguments(BUDGET))
                question = self._session.resume(question, Returned(None))
        return question


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(WorkerLimits(), 64 * 1024 * 1024)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def sandbox(pool):
    with pool.session() as session:
        yield Sandbox(session)


# There and back

EDGES = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 8191, 8192, 2**13_999, -(2**13_999)]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
leaves = st.none() | st.booleans() | st.integers() | st.sampled_from(EDGES) | st.floats() | texts
plain_data = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(texts, inner),
    max_leaves=25,
)


def listed(value):
    """Tuples leave the sandbox as lists."""
    if isinstance(value, dict):
        return {key: listed(part) for key, part in value.items()}
    return [listed(part) for part in value] if isinstance(value, list | tuple) else value


@given(value=plain_data)
@settings(max_examples=examples(150), deadline=None)
def test_what_goes_in_comes_out(sandbox, value):
    # The repr tells types, -0.0 and nan.
    assert repr(sandbox("[x, x]", {"x": value})) == repr([listed(value)] * 2)


@pytest.mark.parametrize("before", [120, 16_380])
@given(value=plain_data)
@settings(max_examples=examples(20), deadline=None)
def test_what_goes_in_comes_out_behind_many_others(sandbox, before, value):
    # Indexes of nodes become two and three bytes long.
    assert repr(sandbox(f"[list(range({before})), x, x]", {"x": value})[1:]) == repr([listed(value)] * 2)


@given(value=plain_data)
@settings(max_examples=examples(30), deadline=None)
def test_what_goes_in_reaches_a_tool(sandbox, value):
    sandbox.given.clear()
    sandbox("tool(x, name=x)", {"x": value, "tool": Function("tool")})
    assert repr(sandbox.given) == repr([([listed(value)], {"name": listed(value)})])


@each("count", [1, 60, 130, 9000, 20_000])
def test_tables_come_out_as_they_went_in(sandbox, count):
    rows = [{"id": row, "name": f"row {row}", "score": row / 3, f"only {row}": None} for row in range(count)]
    assert sandbox("x", {"x": rows}) == rows


@each("count", [0, 100, 124, 128, 16_380, 16_384, 17_000, 70_000])
def test_a_dict_that_holds_the_first_node_is_read_right(sandbox, count):
    # The index 0 is left out of a pair, which makes it as long as a pair of two other lengths.
    code = f"k = 'a' + str(2)\n[k, list(range({count})), {{k: 1.5}}, {{'b' + str(3): k}}, {{k: k}}]"
    assert sandbox(code)[2:] == [{"a2": 1.5}, {"b3": "a2"}, {"a2": "a2"}]


# Kinds that JSON does not have

DATES = "import datetime as d\neast = d.timezone(d.timedelta(hours=-5), 'EST')\n"
GOLDEN = {
    DATES + "d.date(2026, 1, 2)": "2026-01-02",
    DATES + "d.datetime(2026, 1, 2, 3, 4, 5)": "2026-01-02T03:04:05",
    DATES + "d.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=east)": "2026-01-02T03:04:05.000600-05:00",
    DATES + "d.datetime(1, 1, 1, tzinfo=d.timezone.utc)": "0001-01-01T00:00:00+00:00",
    DATES + "d.time(1, 2, 3)": "01:02:03",
    DATES + "d.time(1, 2, 3, 4, tzinfo=east)": "01:02:03.000004-05:00",
    DATES + "d.timedelta(days=-1, seconds=2, microseconds=500_000)": -86397.5,
    DATES + "d.timezone.utc": "UTC",
    DATES + "east": "EST",
    DATES + "d.timezone(d.timedelta(hours=2))": "UTC+02:00",
    "b'\\xff\\x00'": "/wA=",
    "from decimal import Decimal\n[Decimal('1.20'), Decimal('NaN'), Decimal('1E+5')]": ["1.20", "NaN", "1E+5"],
    "[1 + 2j, complex(-0.0, 1)]": ["(1+2j)", "(-0+1j)"],
    "[{1}, set(), frozenset(('a',)), {'k': {2}}]": [[1], [], ["a"], {"k": [2]}],
    "sorted({3, 1, 2})": [1, 2, 3],
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\nP(1, [2])": {"x": 1, "y": [2]},
    "class A:\n    z = 3\n    def __init__(self):\n        self.x = [1]\n[A(), A]": [{"x": [1]}, "<class 'A'>"],
    "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n    y: str = 'q'\nA(1)": {"x": 1, "y": "q"},
    "[ValueError('no'), KeyError('k'), OSError()]": ["ValueError: no", "KeyError: k", "OSError: "],
    "import json\ntry:\n    json.loads('{')\nexcept ValueError as e:\n    x = e\nx": (
        "JSONDecodeError: Expecting ',' delimiter: line 1 column 2 (char 1)"
    ),
    "from pathlib import Path\nPath('/a') / 'b'": "/a/b",
    "[int, ValueError, type(None)]": ["<class 'int'>", "<class 'ValueError'>", "<class 'NoneType'>"],
    "[len, print]": ["<built-in function len>", "<built-in function print>"],
    "[..., NotImplemented]": ["Ellipsis", "NotImplemented"],
    "x = [1]\nx.append(x)\nx": [1, "[...]"],
    "x = {}\nx['x'] = x\nx": {"x": "{...}"},
    "x = []\nt = (x,)\nx.append(t)\nt": [["(...)"]],
    "[range(3), (i for i in [1])]": ["range(0, 3)", [1]],
    "import math\nmath": "<module 'math'>",
    "[2**64, -2**64, 2**63, -2**63]": [2**64, -(2**64), 2**63, -(2**63)],
    "{1: 'a', 2.5: 'b', None: 'c', False: 'd', (1, 'x'): 'e', b'b': 'f', frozenset((1,)): 'g'}": {
        "1": "a", "2.5": "b", "null": "c", "false": "d", "[1, 'x']": "e", "Yg==": "f", "[1]": "g",
    },
    "{True: 1, 'true': 2}": {"true": 2},
}  # fmt: skip


@each("code", GOLDEN)
def test_what_json_does_not_have_comes_out_as_what_comes_nearest(sandbox, code):
    assert repr(sandbox(code)) == repr(GOLDEN[code])


def test_a_function_of_the_code_is_described(sandbox):
    said = sandbox("def f():\n    pass\nf")
    assert said.startswith("<function 'f' at ")


# Sharing


def containers(value):
    found = []
    if isinstance(value, dict | list):
        found.append(value)
        for part in value.values() if isinstance(value, dict) else value:
            found += containers(part)
    return found


SHARED = {
    "in lists": "x = [1]\n[x, x, [x], (x,)]",
    "in dicts": "x = {'k': []}\n{'a': x, 'b': x, 'c': {'d': x}}",
    "in both": "x = [1]\n[x, {'a': x}]",
    "in sets": "t = (1, (2,))\n[t, {t}, frozenset((t,))]",
    "in objects": "class A:\n    pass\nx = []\na, b = A(), A()\na.x = x\nb.x = x\n[a, b, a, x]",
    "in named tuples": "from collections import namedtuple\nP = namedtuple('P', 'x y')\nx = [1]\n[P(x, x), P(x, [x])]",
    "far apart": "x = [1]\n[[[x]], list(range(200)), {'a': {'b': x}}]",
}


@each("code", SHARED.values())
def test_no_two_parts_of_a_result_are_the_same_object(sandbox, code):
    found = containers(sandbox(code))
    assert len({id(part) for part in found}) == len(found)


def test_changing_one_part_changes_no_other(sandbox):
    first, second, inside = sandbox("x = [1, {'k': [2]}]\n[x, x, {'in': x}]")
    first[1]["k"].append("changed")
    first.append("changed")
    assert second == inside["in"] == [1, {"k": [2]}]


def test_no_two_arguments_are_the_same_object(sandbox):
    sandbox.given.clear()
    sandbox("x = [1]\ntool(x, [x], x, name=x, other={'x': x})", {"tool": Function("tool")})
    ((args, named),) = sandbox.given
    assert (args, named) == ([[1], [[1]], [1]], {"name": [1], "other": {"x": [1]}})
    found = containers([args, named])
    assert len({id(part) for part in found}) == len(found)


# Budgets


def refused(sandbox, code, error=TooLargeError, budget=BUDGET):
    """Reading what this code gives is refused, and soon."""
    ended = sandbox.ended(code)
    with calls(MAX_CALLS), pytest.raises(error) as found:
        ended.value(budget)
    return str(found.value)


BOMBS = {
    "lists": "x = [1]\nfor _ in range(40):\n    x = [x, x]\nx",
    "wide lists": "x = ['text'] * 1000\nfor _ in range(5):\n    x = [x] * 1000\nx",
    "dicts": "x = {'k': 1}\nfor _ in range(40):\n    x = {'a': x, 'b': x}\nx",
    "keys": "x = (1,)\nfor _ in range(40):\n    x = (x, x)\n{x: 1}",
    "texts": "x = 'a' * 1_000_000\n[x] * 1000",
    "objects": (
        "class A:\n    pass\nx = [1]\nfor _ in range(25):\n"
        "    a = A()\n    a.x = x\n    a.y = x\n    x = [a]\nx"
    ),
    "one large key in many dicts": "k = tuple(range(100_000))\n[{k: i} for i in range(10_000)]",
    "large keys in many dicts": "k = tuple(range(100_000))\n[{(k, i): i} for i in range(10_000)]",
    "keys in keys": (
        "class A:\n    pass\nk = chr(34) + chr(39) + chr(92)\nfor _ in range(28):\n"
        "    a = A()\n    a.x = {k: 1}\n    k = a\n{k: 1}"
    ),
}  # fmt: skip


@each("code", BOMBS.values())
def test_what_is_small_until_it_is_written_out_is_refused(sandbox, code):
    refused(sandbox, code)


def test_sharing_within_the_budget_is_fine(sandbox):
    found = sandbox("x = [1]\nfor _ in range(12):\n    x = [x, x]\nx")
    assert json.dumps(found).count("1") == 4096


@pytest.mark.parametrize("hold", ["[x]", "(x,)", "{'k': x}", "{x}"], ids=["list", "tuple", "dict", "set"])
def test_sixty_levels_are_fine_and_one_more_is_not(sandbox, hold):
    first = "()" if hold == "{x}" else "[]"
    hold = "frozenset((x,))" if hold == "{x}" else hold
    code = f"x = {first}\nfor _ in range(59):\n    x = {hold}\nx"
    assert len(containers(sandbox(code))) == 60
    refused(sandbox, code.replace("59", "60"))


def test_levels_inside_a_key_count(sandbox):
    code = "x = ()\nfor _ in range(58):\n    x = (x,)\n{x: 1}"
    assert len(sandbox(code)) == 1
    refused(sandbox, code.replace("58", "59"))


@each("code", ["'x' * 1000", "['x' * 100] * 10", "list(range(500))", "b'x' * 1000", "{'x' * 1000: 1}"])
def test_more_than_the_budget_is_refused(sandbox, code):
    refused(sandbox, code, budget=900)
    assert sandbox(code, budget=10_000)


def test_the_budget_is_for_all_arguments_together(pool):
    with pool.session() as session:
        call = session.feed("tool('x' * 600, y='y' * 600)", {"tool": Function("tool")}, print)
        assert call.arguments(2000) == (["x" * 600], {"y": "y" * 600})
        with pytest.raises(TooLargeError):
            call.arguments(1000)


@pytest.mark.parametrize("code", ["10**1_000_000", "[-10**1_000_000]", "{'k': 10**4300}"])
def test_numbers_of_too_many_digits_are_refused(sandbox, code):
    assert "4300 digits" in refused(sandbox, code, TooManyDigitsError)


@each("bits", [13_999, 14_000, 14_008, 14_280, 14_284, 14_285, 14_288, 14_296])
def test_a_number_that_comes_out_can_be_printed(sandbox, bits):
    for code in (f"2**{bits} - 1", f"{{2**{bits} - 1: 1}}"):
        with suppress(TooManyDigitsError):
            json.dumps(sandbox(code))


def test_numbers_of_many_digits_are_fine(sandbox):
    assert sandbox("[2**13_999, -2**13_999]") == [2**13_999, -(2**13_999)]


@pytest.mark.parametrize("wrapped", ["f()", "[f()]", "{'k': f()}", "asyncio.gather(f(), f())"])
def test_what_was_never_awaited_is_refused(sandbox, wrapped):
    assert "await" in refused(sandbox, f"import asyncio\nasync def f():\n    return 1\n{wrapped}", NeverAwaitedError)


def test_the_check_is_called_now_and_then(sandbox):
    calls = []
    sandbox("list(range(200_000))", check=lambda: calls.append(1))
    assert len(calls) > 3


def test_what_the_check_raises_passes_through(sandbox):
    class Stop(BaseException): ...

    def check():
        raise Stop

    with pytest.raises(Stop):
        sandbox("[1]", check=check)


def test_the_session_goes_on_after_a_value_was_refused(sandbox):
    refused(sandbox, "'x' * 1000", budget=10)
    assert sandbox("1 + 1") == 2


# A second opinion

EXPRESSIONS = [
    "None", "True", "False", "0", "-1", "63", "64", "8192", "2**31", "-2**63", "2**63", "2**64", "-3**200", "7**4000",
    "0.1", "-0.0", "1e308", "5e-324", "float('inf')", "-float('inf')", "float('nan')", "1/3",
    "''", "'text'", "'é' * 100", "chr(0x10ffff) * 3", "chr(0) + 'x'", "'a' * 127", "'a' * 128", "'a' * 20_000",
    "[]", "[[]]", "()", "(1, (2, [3]))", "list(range(200))", "[i * 0.5 for i in range(300)]", "[[1, 2], [1, 2]]",
    "{}", "{'a': 1, 'b': [2, {'c': None}]}", "{i: i * i for i in range(200)}",
    "{'k%d' % i: {'v': i} for i in range(150)}",
    "{1: 2, None: 3, 1.5: 4, False: 5}", "{(1, 2): 3, ('a', ('b',)): 4}",
    "set()", "{1}", "{3, 1, 2}", "frozenset((5, 4))", "[{1}, frozenset(('a',))]",
    "b''", "b'bytes'", "bytes.fromhex('00ff80')", "[b'a', b'b']",
    "1 + 2j", "[complex(0.5, -0.0)]", "...", "[int, str, dict]",
    "d.date(2026, 1, 2)", "d.datetime(2026, 1, 2, 3, 4, 5, 6)", "d.datetime(2026, 1, 2, tzinfo=d.timezone.utc)",
    "d.datetime(2026, 1, 2, tzinfo=d.timezone(d.timedelta(hours=-5), 'EST'))", "d.time(1, 2, 3)", "d.date(1, 1, 1)",
    "d.timedelta(days=-3, seconds=7)", "d.timedelta(microseconds=1)", "d.timezone.utc", "d.date(9999, 12, 31)",
    "Decimal('1.20')", "[Decimal('-0'), Decimal('1E+5')]", "{Decimal('1.5'): 1}", "Path('/a/b')", "[Path('c.txt')]",
    "P(1, [2])", "[P(1, P(2, 3))]", "ValueError('no')", "[KeyError('k'), TypeError('t')]",
    "'a b c'.split()", "sorted('hello')", "dict(zip('abc', range(3)))", "divmod(17, 5)",
    "json.loads('[1, {\"a\": null}]')",
    "[x for x in [1]] * 3", "[shared, shared, {'s': shared}]", "[first, list(range(17_000)), {first: first}]",
]  # fmt: skip
SETUP = """
import datetime as d
import json
from collections import namedtuple
from decimal import Decimal
from pathlib import Path
P = namedtuple('P', 'x y')
shared = [1, {'k': (2,)}]
first = 'a' + str(2)
"""


@pytest.fixture(scope="module")
def official():
    with Monty() as monty, monty.checkout() as session:
        session.feed_run(SETUP)
        yield session


@pytest.fixture(scope="module")
def prepared(pool):
    with pool.session() as session:
        sandbox = Sandbox(session)
        sandbox(SETUP)
        yield sandbox


def as_json(value):
    """What Monty's own client made of a value, as plain data."""
    match value:
        case dict():
            return {_as_key(key): as_json(part) for key, part in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {name: as_json(part) for name, part in zip(value._fields, value, strict=True)}
        case list() | tuple() | set() | frozenset():
            return [as_json(part) for part in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Decimal() | complex() | datetime.tzinfo():
            return str(value)
        case PurePath():
            return value.as_posix()
        case Exception():
            return f"{type(value).__name__}: {value.args[0]}"
        case type():
            return f"<class '{value.__name__}'>"
    return "Ellipsis" if value is ... else value


def _as_key(key):
    key = as_json(key)
    return key if isinstance(key, str) else json.dumps(key) if key is None or isinstance(key, bool) else str(key)


@each("expression", EXPRESSIONS)
def test_the_official_client_reads_the_same(prepared, official, expression):
    theirs, ours = official.feed_run(expression), prepared(expression)
    if isinstance(theirs, set | frozenset):  # whose order is nobody's business
        theirs, ours = sorted(theirs), sorted(ours)
    assert repr(ours) == repr(as_json(theirs))
