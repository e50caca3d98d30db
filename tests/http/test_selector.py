"""Selectors: what they choose, what is not a selector, and bombs."""

import asyncio
from contextlib import suppress
from itertools import count

import pytest
from helpers import Checkpoint, calls, each

from onetool.core.errors import ToolFailure
from onetool.http import jmespath_bounds
from onetool.http.response import LARGE_ANSWER, Selector, SelectorError

DATA = {"daily": [{"c": 21, "tags": ["a", "b"]}, {"c": 19, "tags": []}], "name": "Kyiv", "none": None}


@each(
    ("text", "value"),
    [
        ("daily[0]", {"c": 21, "tags": ["a", "b"]}),
        ("daily[*].c", [21, 19]),
        ("daily[?c > `20`].tags[]", ["a", "b"]),
        ("{n: name, max: max(daily[*].c)}", {"n": "Kyiv", "max": 21}),
        ("daily[?tags == ['a', 'b']].c | [0]", 21),
        ("daily[?tags == `[\"a\", \"b\"]`].c | [0]", 21),
        ("missing.deep[3]", None),
        ("sort_by(daily, &c)[0].c", 19),
        ("contains(name, 'y')", True),
        ("contains(daily[0].tags, 'b')", True),
        ("join(', ', daily[0].tags)", "a, b"),
        ("to_string(daily[0].tags)", '["a","b"]'),
        ("none", None),
        ("@", DATA),
    ],
)  # fmt: skip
def test_what_is_chosen(text, value):
    assert Selector(text).now(DATA) == value


@each(
    ("text", "words"),
    [
        ("daily[", "SyntaxError|Incomplete|nvalid|parse"),
        ("a..b", "."),
        ("nonsense(@)", r"no function nonsense\(\); known: abs"),
        ("a[?nonsense(b)]", "no function nonsense"),
        ("(" * 3000 + "a" + ")" * 900, "."),
        ("a" * 5000, "4,000"),
    ],
)
def test_what_is_no_selector(text, words):
    with pytest.raises(SelectorError, match=words):
        Selector(text)


@each("text", ["length(`5`)", "sum(daily)", "max_by(daily, &tags)", "keys(name)", "contains(`5`, 'a')"])
def test_what_does_not_fit_the_data_is_a_failure_in_words(text):
    with pytest.raises(ToolFailure, match="can't be applied to the answer") as caught:
        Selector(text).now(DATA)
    assert caught.value.reason == "output_invalid"


DOUBLE = "|".join(["[@,@]"] * 60)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        DOUBLE,
        f"to_string({DOUBLE})",
        f"({DOUBLE}) == ({DOUBLE})",
        f"contains({DOUBLE}, {DOUBLE})",
        "|".join(["join(@, `[\"\",\"\",\"\",\"\",\"\"]`)"] * 40),
        "|".join(["to_string([@])"] * 60),
        "|".join(["[*].[@,@][]"] * 60),
        "[*].{a: @, b: @}" + "|[*].{a: @, b: @}" * 60,
        "map(&map(&map(&map(&map(&@, @), @), @), @), @)",
    ],
)  # fmt: skip
def test_bombs_end_soon(text, monkeypatch):
    monkeypatch.setattr(jmespath_bounds, "MAX_PARTS", 200_000)
    monkeypatch.setattr(jmespath_bounds, "MAX_STEPS", 20_000)
    monkeypatch.setattr(jmespath_bounds, "SECONDS", 3600)
    data = ["x" * 100] * 40
    with calls(1_000_000), suppress(ToolFailure, SelectorError):
        Selector(text).now(data if "join" not in text else "x" * 100)


def test_the_time_is_looked_at_before_every_step(monkeypatch):
    """One step may sort a million."""
    seconds = count()
    monkeypatch.setattr(jmespath_bounds, "monotonic", lambda: next(seconds))
    with pytest.raises(ToolFailure, match=r"2 s or 2,000,000 steps"):
        Selector("[sort(@)[0], sort(@)[0]]").now([2, 1])
    assert next(seconds) == 4  # the start and three steps


@pytest.mark.parametrize("text", ["to_number('nan')", "[to_number('1e999')]", "sum(`[1e308, 1e308]`)"])
def test_numbers_that_json_does_not_have(text):
    with pytest.raises(ToolFailure, match=r"\(\) returns a number that JSON does not have: (nan|inf)"):
        Selector(text).now({})


def test_what_it_makes_is_not_too_deep():
    deep = []
    for _ in range(199):
        deep = [deep]
    assert Selector("@").now(deep) == deep
    with pytest.raises(ToolFailure, match="nested too deep: more than 200 levels"):
        Selector("[@]").now(deep)


def test_large_data_does_not_hold_up_the_loop(monkeypatch):
    data = [{"a": n, "b": [n] * 5} for n in range(20)]
    chosen = Selector("[?a > `5` && b[0] != `7`].a | length(@)")

    step, loop_runs = jmespath_bounds.Interpreter.visit, Checkpoint()

    def visit(self, node, value=None):
        loop_runs.pause_thread()
        return step(self, node, value)

    monkeypatch.setattr(jmespath_bounds.Interpreter, "visit", visit)

    async def main():
        work = asyncio.ensure_future(chosen.of(data, LARGE_ANSWER + 1))
        await loop_runs.arrival()
        loop_runs.open()
        return await work

    assert asyncio.run(main()) == 13
