"""What a recipe's steps are called with while it is built is what they are called with when it runs as a tool."""

import asyncio
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

from onetool.app import App

PLAIN = [
    True,
    False,
    None,
    0,
    1,
    -3,
    2.5,
    1e-5,
    1e-7,
    12345.678,
    10**15,
    1e22,
    "",
    "5",
    "a",
    "b c",
    "x'y",
    'x"y',
    "'\"",
]
PLAIN += ["\n\t\\", "é\U0001f600", "\u202e\ufeff\u00a0\x7f", "￿", "\ue000"]
KNOWN = {
    "cities": ["Rome", "Oslo"],
    "step1": {"daily": [{"temp": 24.5, "sky": None}, {"temp": 7, "tags": ["x", {"k": None}]}], "a b": "it's"},
    "step2": [[], {}, "", 0, False, [1, [True]]],
    "name": "Ann \U0001f600",
}
TEXTS = [
    "${cities}",
    "All: ${cities}.",
    "${step1.daily[1].tags[1].k}",
    "${step1} and ${step2}",
    '${table(step1.daily, "temp", "tags", "none")}',
    "${name[4]}!",
    '${step1["a b"]}',
    "${step2[5]} ${name}",
    "$${name}",
    "${cities.length}",
    "${step1.daily[7]}",
    "${step2[1].x}",
    '${table(step2, "x")}',
]
OPERATORS = ["==", "!=", ">", "<", ">=", "<=", "in", "is", "not"]
STRICTER = {
    "recipe.no.rows"
}  # a text or an object is not a list of rows, although Python goes through its signs or keys


def value(chance, depth=0):
    kind = chance.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return chance.choice(PLAIN)
    if kind < 6:
        return chance.choice(TEXTS)
    items = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return items if kind < 8 else {chance.choice(["k", "a b", "5"]): one for one in items}


def by_run(expressions):
    """What the real `run` gives for each, as JSON; "failed" where it raises."""
    lines = ["import json", "found = []"]
    for one in expressions:
        lines += ["try:", f"    found.append({one})", "except Exception:", '    found.append("failed")']
    with TemporaryDirectory() as folder:
        config = Path(folder) / "onetool.yaml"
        config.write_text("stats: {enabled: false}\n", encoding="utf-8")
        with App.open(config) as app:
            result = asyncio.run(app.run("\n".join([*lines, "json.dumps(found)"]), variables=KNOWN))
    assert result.ok, result.error
    return json.loads(result.data)


def compare(node, what, asked):
    given = [{"value": one, "known": KNOWN} for one in asked]
    codes = node(f"{what}Code", *given)
    here, there = node(what, *given), by_run([f"bool({one})" if what == "condition" else one for one in codes])
    for code, ours, theirs in zip(codes, here, there, strict=True):
        is_stricter = isinstance(ours, dict) and ours.get("failed") in STRICTER
        ours = "failed" if isinstance(ours, dict) and "failed" in ours else ours
        assert is_stricter or json.dumps(ours) == json.dumps(theirs), code
    return here, there


def test_values_are_those_of_python(node):
    chance = random.Random(16)
    here, there = compare(node, "value", [*TEXTS, *(value(chance) for _ in range(300))])
    assert "All: ['Rome', 'Oslo']." in here
    assert there.count("failed") > 5


def test_comparisons_are_those_of_python(node):
    chance = random.Random(17)
    fixed = [(True, ">", 0), ("5", "in", 5), (True, "==", 1), ([1], "==", [True]), ("￿", "<", "\U0001f600")]
    fixed += [([1, 2], "<", [1, "x"]), ({"5": 1}, "in", 5), ({}, "<", {}), (["a"], "in", ["a"]), (1, "==", 1.0)]
    fixed += [(value(chance), chance.choice(OPERATORS), value(chance)) for _ in range(400)]
    asked = [
        {"left": left, "operator": sign, "right": None if sign in ("is", "not") else right}
        for left, sign, right in fixed
    ]
    here, _ = compare(node, "condition", asked)
    assert here[:3] == [True, {"failed": "recipe.no.order"}, True]


def test_a_step_for_each_item_is_called_as_its_comprehension_says(node):
    step = {"name": "s", "tool": "t", "args": {"x": "${item} in ${cities}"}, "each": ["${name}", 2, None]}
    step["when"] = {"left": "${item}", "operator": "is", "right": None}
    [found] = node("calls", {"step": step, "known": KNOWN})
    assert found == [
        {"args": {"x": "Ann \U0001f600 in ['Rome', 'Oslo']"}, "item": "Ann \U0001f600"},
        {"args": {"x": "2 in ['Rome', 'Oslo']"}, "item": 2},
    ]
    assert node("calls", {"step": {**step, "each": "${name}"}, "known": KNOWN}) == [{"failed": "recipe.no.list"}]
