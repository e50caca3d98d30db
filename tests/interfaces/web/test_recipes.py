"""Recipes of the page are Python and back, exactly: lib/recipe/recipe.ts and lib/recipe/read.ts, run by Node."""

import ast
import random

TEXTS = [
    "",
    "Rome",
    'a "b" \\ \n\t\u2028',
    "${step1}",
    "$${step1}",
    "$$${step1}",
    "${step9.x}",
    "{",
    "$",
    "${",
    "é\U0001f600",
    "${cities}$",
    "-",
    "-5",
    '"',
    "'",
    "\n",
    "+",
    "[",
    ")",
    "in",
    "if",
    "None",
    "${item}",
    "$${",
    "${table(",
    "str",
    "\u202e\ufeff\0",
]
TEXTS += [
    "${step1.daily[0].temp}",
    'It is ${step1["a b"][2]}, ${step1}.',
    '${table(step1, "x", "y z")}',
    'T\n${table(cities[0], "a")}\n$',
]
KEYS = ["city", "a b", "class", "x1"]
OPERATORS = ["==", "!=", ">", "<", ">=", "<=", "in", "is", "not"]


def value(chance, depth=0):
    kind = chance.randrange(8 if depth < 2 else 6)
    if kind < 4:
        return chance.choice(TEXTS)
    if kind < 6:
        return chance.choice([True, False, None, 0, -3, 2.5, 10**15, 1e-9])
    items = [value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return items if kind == 6 else {chance.choice(KEYS): one for one in items}


def recipe(chance):
    steps = []
    for number in range(1, chance.randrange(2, 5)):
        step = {"name": f"step{number}", "tool": chance.choice(["pack.tool", "lamp"])}
        names = chance.sample(KEYS, chance.randrange(len(KEYS)))
        # What code can't say as a keyword comes last.
        step["args"] = {name: value(chance) for name in sorted(names, key=lambda one: one in ("a b", "class"))}
        if chance.random() < 0.5:
            step["each"] = value(chance)
        operator = chance.choice([None, *OPERATORS])
        right = None if operator in ("is", "not") else value(chance)
        step["when"] = operator and {"left": value(chance), "operator": operator, "right": right}
        steps.append(step)
    return {"steps": steps, "result": value(chance)}


def test_what_a_recipe_is_written_as_is_python_and_reads_as_the_same_recipe(node):
    chance = random.Random(22)
    recipes = [recipe(chance) for _ in range(400)]
    inputs = ["cities"]
    first = node("both", *({"recipe": one, "inputs": inputs} for one in recipes))
    for asked, found in zip(recipes, first, strict=True):
        ast.parse(found["code"])
        assert found["recipe"] == asked, found["code"]
    again = node("both", *({"recipe": found["recipe"], "inputs": inputs} for found in first))
    assert [found["code"] for found in again] == [found["code"] for found in first]
    assert [found["recipe"] for found in again] == [found["recipe"] for found in first]


def test_every_single_sign_that_one_types_leaves_a_recipe(node):
    """The first key of `-5`, a quote, a bracket: in an argument, a list, a comparison, the result."""
    signs = [chr(code) for code in range(1, 128)] + [
        "é",
        "\U0001f600",
        "\u2028",
        "${",
        "$$",
        '"""',
        "None",
        "not",
        "-5",
    ]

    def with_it(sign):
        when = {"left": sign, "operator": "==", "right": sign}
        step = {"name": "step1", "tool": "t", "args": {"x": sign, "y": [sign], "z": {sign: sign}}, "each": [sign]}
        return {"steps": [{**step, "when": when}], "result": sign}

    made = [with_it(sign) for sign in signs]
    found = node("both", *({"recipe": one, "inputs": ["cities"]} for one in made))
    assert [sign for sign, one, asked in zip(signs, found, made, strict=True) if one["recipe"] != asked] == []


def test_a_recipe_reads_as_it_was_made(node):
    made = {
        "steps": [
            {"name": "step1", "tool": "meteo.now", "args": {"city": "${item}"}, "each": "${cities}", "when": None},
            {
                "name": "step2",
                "tool": "mail.send",
                "args": {"text": 'Today:\n${table(step1, "city", "celsius")}', "class": "${step1[0].daily}"},
                "when": {"left": "${step1}", "operator": "is", "right": None},
            },
        ],
        "result": "${step2}",
    }
    [found] = node("both", {"recipe": made, "inputs": ["cities"]})
    assert found["recipe"] == made
    assert found["code"].splitlines() == [
        "step1 = [meteo.now(city=item) for item in cities]",
        'step2 = mail.send(text="Today:\\n" + "\\n".join("| " + " | ".join(row) + " |" for row in'
        ' [["city", "celsius"], ["---", "---"]] + [[str(row.get("city", "")), str(row.get("celsius", ""))]'
        ' for row in step1]), **{"class": step1[0]["daily"]}) if step1 else None',
        "step2",
    ]


def test_code_written_by_hand_is_a_recipe_only_if_nothing_of_it_is_lost(node):
    good = [
        "step1 = pack.tool(\n    a = 'x',\n    b = [1, 2],\n)\nstep1\n".replace(",\n)", "\n)"),
        "",
        "a = t()\n\nb = t(x=a)\nb",
        "a = t(constructor=1, toString='x', __proto__=[2])\na",
        "a = t(\n    x=1)\n  \na\n  ",
    ]
    bad = [
        "step1 = pack.tool()  # why\nstep1",
        "step1 = pack.tool(1)\nstep1",
        "for x in y:\n    t()",
        "x = 1\nx",
        "print(1)",
        'step1 = t(a=f"{x}")\nstep1',
        "step1 = t(a=1.0)\nstep1",
        "step1 = t(a=other)\nstep1",
        "a = t()\na = t()\na",
        "step1 = t(a=1 + 2)\nstep1",
        "step1 = t()\n",
        "a = [t(x=item) for item in [1] if item if item]\na",
        "a = t(x=item)\na",
        'a = t(x="1" "2")\na',
        "a = t()\nstr(a)",
        "cities = t()\ncities",
        'a = t(b="\\x41")\na',
        'a = t(b="c\\/d")\na',  # Python keeps this backslash
        'a = t(b="\\ud83d\\ude00")\na',  # two halves, which Python does not join
        "a = t(b='\t')\na",
        "mail = a.b()\nstep2 = mail.send()\nstep2",
        "mail = mail.send()\nmail",
        "a = cities.send()\na",
        "if = a.b()\nif",
        "a = if.b()\na",
        "str = t()\nstr",
        "a = t()\n  a",
        " a = t()\na",
        "import os",
        "((((",
        '"',
    ]
    found = node("both", *({"code": one, "inputs": ["cities"]} for one in [*good, *bad]))
    assert [one["recipe"] is not None for one in found] == [True] * len(good) + [False] * len(bad)


def test_arguments_may_be_called_like_what_every_object_has(node):
    args = {"constructor": 1, "toString": "${toString}", "__proto__": "${constructor.x}"}
    made = {"steps": [{"name": "step1", "tool": "t", "args": args, "when": None}], "result": "${step1}"}
    [found] = node("both", {"recipe": made, "inputs": ["constructor", "toString"]})
    assert found["recipe"] == made
    assert all(
        node("key", {"step": made["steps"][0], "known": {"constructor": 1}}, {"step": made["steps"][0], "known": {}})
    )


def test_what_only_looks_like_a_place_is_text(node):
    known = {"x": {"a": 1}}
    texts = [r'a ${x["\d+"]} b', '${x["\t"]}', r'${x["\u12"]}', r'${table(x, "\d")}']
    assert node("value", *({"value": one, "known": known} for one in texts)) == texts
    assert node("unknown", *({"value": one, "names": []} for one in texts)) == [[]] * len(texts)


def test_many_dollars_take_no_longer_than_other_signs(node):
    """If time grew with their square, this would take hours."""
    many = "$" * 1_000_000
    [found] = node("value", {"value": f"{many}x${{x}}", "known": {"x": 1}})
    assert found == f"{many}x1"
