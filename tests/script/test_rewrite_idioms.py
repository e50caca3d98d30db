"""Everyday Python that the sandbox would not take as it is."""

import pytest
from helpers import each


@pytest.fixture(scope="module")
def scripts(scripts_for_module):
    scripts_for_module.tool("shop.price", lambda name="tea": f"{name}: 4", name={"type": "string"})
    return scripts_for_module


@each(
    ("code", "value"),
    [
        ("sorted(['b', 'A'], key=str.lower)", ["A", "b"]),
        ("[*map(str.strip, [' a ', 'b '])]", ["a", "b"]),
        ("str.join('-', ['a', 'b'])", "a-b"),
        ("f = dict.get\nf({'a': 1}, 'b', 2)", 2),
        ("dict.fromkeys('ab', 1)", {"a": 1, "b": 1}),
        ("x = 'é'; [str.upper(x), shop.price(name=str.title('tea'))]", ["É", "Tea: 4"]),
        ("class str:\n    lower = 5\nstr.lower", 5),
        ("'str.lower'", "str.lower"),
        ("next((x for x in [1, 2, 3] if x > 1), None)", 2),
        ("next(x for x in [shop.price()])", "tea: 4"),
        ("def next(x, d):\n    return 'mine'\nnext((x for x in []), 1)", "mine"),
        ("try:\n    raise ValueError(5)\nexcept ValueError as e:\n    r = str(e)\nr", "5"),
        ("try:\n    raise ValueError('a', 1)\nexcept ValueError as e:\n    r = str(e)\nr", "('a', 1)"),
        (
            "try:\n    try:\n        1 / 0\n    except Exception as e:\n        raise RuntimeError(e) from e\n"
            "except RuntimeError as e:\n    r = str(e)\nr",
            "division by zero",
        ),
        ("e = KeyError(f'{1}')\nstr(e)", "'1'"),
        ("d = {'a': 1, 'b': 3}\nmax(d, key=d.get)", "b"),
        ("d = {'a': 1}\n[*map(d.get, ['a', 'x'])]", [1, None]),
    ],
)
def test_it_works_as_it_is(scripts, code, value):
    assert scripts.value(code) == value


def test_lines_keep_their_numbers(scripts):
    code = "x = next(\n    (n for n in [1]),\n    None,\n)\nraise ValueError(\n    x,\n    2,\n)"
    error = scripts.error(code)
    assert error.message == "ValueError: (1, 2)"
    assert error.hints[0].startswith("line 5: ")


def test_what_can_not_be_said_otherwise_is_told(scripts):
    assert "an exception takes one string here" in scripts.error("raise ValueError(('x'), 2)").message
