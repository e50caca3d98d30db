"""Snippets: `$name key=value` becomes code, and no value ever becomes code."""

import ast
import contextlib
import json
from typing import Any

import pytest
from helpers import calls, each, examples, sandboxed
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.config.model import Param, Snippet
from onetool.script.snippets import SnippetError, expand, parameters, render_snippet, usage

RESEARCH = Snippet(
    description="Search the web",
    params={
        "topic": Param(description="What to look for"),
        "count": Param(type="integer", default=5),
        "ratio": Param(type="number", default=0.5),
        "deep": Param(type="boolean", default=False),
        "tags": Param(type="array", default=[]),
        "more": Param(type="object", default=None),
    },
    body='brave.search(query="{{ topic }}", count={{ count }})',
)
SNIPPETS = {"research": RESEARCH, "re-read": Snippet(body="1")}
NASTY = st.text(st.sampled_from("\"'\\{}\n\r\0 #abfrnx0N[\t\u2028\x85é🦊\U000f0000"))
TEXTS = NASTY | st.text()


def body(text: str, **values: Any) -> str:
    """A template with these values, all of them declared as what they are."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    params = {key: Param(type=kinds.get(type(value), "string"), default=None) for key, value in values.items()}  # type: ignore[arg-type]
    return render_snippet(
        Snippet(params=params, body=text), {key: one for key, one in values.items() if one is not None}
    )


def values_of(call: str) -> dict[str, Any]:
    """What a call of research gives to its body."""
    names = list(RESEARCH.params)
    text = f"[{', '.join(f'{{{{ {name} }}}}' for name in names)}]"
    code = expand(call, {"research": Snippet(params=RESEARCH.params, body=text)})
    return dict(zip(names, ast.literal_eval(code), strict=True))


def refusal(text: str) -> str:
    with pytest.raises(SnippetError) as caught:
        expand(text, SNIPPETS)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is one


@each("text", ["", "$", "$ a", "$1", "x = '$a'", "# $a\n$a", '"$research topic=tea"', "$$a"])
def test_a_dollar_elsewhere_is_none(text):
    with pytest.raises(SnippetError, match=r"called as \$name key=value"):
        expand(text, SNIPPETS)


# How it is written


@each(
    ("call", "topic"),
    [
        ("topic=tea", "tea"),
        ("topic = tea", "tea"),
        ("topic=green tea", "green tea"),
        ("topic='green tea'", "green tea"),
        (r'topic="a \"b\" \\ \x41\u00e9\n\d"', 'a "b" \\ Aé\n\\d'),
        (r'topic="\ud83e\udd8a"', "🦊"),
        ("topic=it's", "it's"),
        ("topic=", ""),
        ("topic=https://example.com/?a=1&b=2", "https://example.com/?a=1&b=2"),
        ("topic=a == b", "a == b"),
        ("topic: where x=5: all", "where x=5: all"),
        ("topic: 'green tea'", "green tea"),
        ("topic: 'green' or 'black'", "'green' or 'black'"),
        ('topic="""two\nlines"""', "two\nlines"),
        ("topic=5", "5"),
        ('topic=["a"]', '["a"]'),
    ],
)
@each("between", [" ", "\n", "\n\n  "])
def test_values_on_one_line_and_on_many(call, topic, between):
    assert values_of(f"$research{between}{call}\ncount=3\n")["topic"] == topic
    assert values_of(f"$research count: 3\n{call}")["count"] == 3


def test_a_bare_value_ends_where_the_next_key_begins():
    found = values_of("$research topic=green tea count=3 deep=true")
    assert (found["topic"], found["count"], found["deep"]) == ("green tea", 3, True)


@each(
    ("call", "key", "value"),
    [
        ("count=3", "count", 3),
        ("count=-3", "count", -3),
        ('count="3"', "count", 3),
        ("count=3.0", "count", 3),
        (f"count={2**100}", "count", 2**100),
        ("ratio=2", "ratio", 2),
        ("ratio=1.5e3", "ratio", 1500.0),
        (f"count={10**50}", "count", 10**50),
        ("ratio=0.25", "ratio", 0.25),
        ("deep=true", "deep", True),
        ("deep=False", "deep", False),
        ('tags=["a b", 1, null, true]', "tags", ["a b", 1, None, True]),
        ('tags: [\n  "a",\n  "b"\n]', "tags", ["a", "b"]),
        ("""tags='["a"]'""", "tags", ["a"]),
        ('more={"a": {"b": 0.5}}', "more", {"a": {"b": 0.5}}),
    ],
)
def test_values_are_of_their_type(call, key, value):
    found = values_of(f"$research topic=x\n{call}")[key]
    assert found == value
    assert type(found) is type(value)


def test_the_example_of_the_documents():
    text = (
        'results = brave.search(query="{{ topic }}", count={{ count }})\n'
        'llm.transform(input=results, prompt="Extract key findings")\n'
    )
    snippet = Snippet(params={"topic": Param(), "count": Param(default=5)}, body=text)
    assert expand("$brv_research topic=Python", {"brv_research": snippet}) == (
        'results = brave.search(query="Python", count=5)\nllm.transform(input=results, prompt="Extract key findings")\n'
    )


# What is refused, and how


@each(
    ("call", "words"),
    [
        ("$reserch topic=x", "there is no snippet $reserch, did you mean $research?"),
        ("$weather", "there is no snippet $weather; known: $research, $re-read"),
        ("$research", "topic is missing (usage: $research topic=… [count=5] [ratio=0.5] [deep=false] [tags=[]]"),
        ("$research tpic=x", "there is no parameter 'tpic', did you mean topic?; topic is missing"),
        ("$research topic=x count=y", "count must be a whole number such as 3, not 'y'"),
        ("$research topic=x count=3.5", "count must be a whole number"),
        ("$research topic=x count=true", "count must be a whole number"),
        ("$research topic=x ratio=nan", "ratio must be a number"),
        ("$research topic=x ratio=1e999", "ratio must be a number"),
        ("$research topic=x deep=1", "deep must be true or false, not '1'"),
        ("$research topic=x tags=a", 'tags must be JSON such as ["a", "b"], not \'a\''),
        ("$research topic=x tags=[1,", "tags must be JSON"),
        ("$research topic=x tags=[NaN]", "tags must be JSON"),
        ('$research topic=x tags={"a": 1}', "tags must be JSON"),
        ("$research topic=x tags=" + "[" * 100_000, "tags must be JSON"),
        ("$research topic=x tags=" + "[" * 40 + "]" * 40, "tags is nested deeper than 32"),
        ("$research topic=x topic=y", "topic is given twice"),
        ('$research topic="x', "topic has a quote that is not closed"),
        ('$research topic="x"y', "topic has text right after its closing quote"),
        (r'$research topic="\ud800"', "topic contains a lone surrogate"),
        ("$research tea", "'tea' is not key=value; topic is missing"),
        ("$research topic=x\nand more", "'and more' is not key=value (text of several lines goes in three quotes)"),
        ('$research(topic="x")', "'(topic=\"x\")' can't follow the name"),
        ("$research count=x tags=y", "topic is missing"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_how_it_is_right(call, words):
    said = refusal(call)
    assert words in said
    assert "no snippet" in said or "(usage: $research topic=…" in said


def test_all_that_is_missing_is_named():
    snippet = Snippet(params={"a": Param(), "b": Param(), "c": Param(default="x y")}, body="")
    with pytest.raises(SnippetError, match=r"^\$two: a, b are missing \(usage: \$two a=… b=… \[c=\"x y\"\]\)$"):
        expand("$two", {"two": snippet})


def test_without_snippets():
    with pytest.raises(SnippetError, match=r"no snippet \$a: the config has none"):
        expand("$a", {})


# Typed values, and what a prompt needs to know


def test_parameters_as_data():
    topic, count, *_ = parameters(RESEARCH)
    assert topic == {"name": "topic", "type": "string", "description": "What to look for", "required": True}
    assert count == {"name": "count", "type": "integer", "description": "", "required": False, "default": 5}
    assert usage("re-read", SNIPPETS["re-read"]) == "$re-read"


def test_typed_values_and_texts_of_them():
    assert render_snippet(RESEARCH, {"topic": "tea", "count": 3}) == 'brave.search(query="tea", count=3)'
    assert render_snippet(RESEARCH, {"topic": "tea", "count": "3"}) == 'brave.search(query="tea", count=3)'
    with pytest.raises(SnippetError, match="topic must be text, not 5"):
        render_snippet(RESEARCH, {"topic": 5})
    with pytest.raises(SnippetError, match="more must be plain data"):
        render_snippet(RESEARCH, {"topic": "x", "more": {"a": object()}})


# What the body makes of values


@each(
    ("text", "values", "code"),
    [
        ("f({{ a }})", {"a": "tea"}, "f('tea')"),
        ("f({{ a }})", {"a": 5}, "f(5)"),
        ("f({{ a }})", {"a": True}, "f(True)"),
        ("f({{ a }})", {"a": None}, "f(None)"),
        ("f('{{ a }}')", {"a": None}, "f('')"),
        ("f({{ a }})", {"a": ["x", None, {"y": [True]}]}, "f(['x', None, {'y': [True]}])"),
        ("f('{{ a }}')", {"a": ["x", 1]}, "f('[\\'x\\', 1]')"),
        ("print({{ a }}.upper(), len({{ a }}))", {"a": "tea"}, "print('tea'.upper(), len('tea'))"),
        ('f("{{ a }}")', {"a": "it's"}, 'f("it\'s")'),
        ("f('a' \"{{ a }}\")", {"a": "it's"}, "f('a' \"it\\'s\")"),
        ("x = {{ a }} ** 2", {"a": -2}, "x = (-2) ** 2"),
        ("{{ a }}.real", {"a": 2}, "(2).real"),
        ("f'{x:{{ a }}}'", {"a": ">5"}, "f'{x:>5}'"),
        ("f'{x!r:{{ a }}.{y}}'", {"a": 5}, "f'{x!r:5.{y}}'"),
        ("f'{x != {{ a }}}'", {"a": 5}, "f'{x != 5}'"),
        ("x = 1  # {{ a }}\ny", {"a": "so\nimport os"}, "x = 1  # so import os\ny"),
        ("# {{ a }}", {"a": "a\rb\x0cc\u2028d\0"}, "# a b c d "),
        ("b'{{ a }}'", {"a": "é'"}, "b'\\xc3\\xa9\\''"),
        ("'\\0{{ a }}'", {"a": "12"}, "'\\0\\x312'"),
        ("'\\x41{{ a }}'", {"a": "12"}, "'\\x4112'"),
        ("no values: 'it' \"is\" {}", {}, "no values: 'it' \"is\" {}"),
    ],
)
def test_values_stand_as_their_place_needs_them(text, values, code):
    assert body(text, **values) == code


@each(
    ("text", "values", "words"),
    [
        ('r"{{ a }}"', {"a": 'x"'}, "line 1: a: a raw string has no escapes"),
        ('r"{{ a }}"', {"a": "x\\"}, "a raw string has no escapes"),
        ('r"{{ a }}"', {"a": "x\ny"}, "a raw string has no escapes"),
        ("rb'{{ a }}'", {"a": "é"}, "a raw string has no escapes"),
        ("f'{ {{ a }} }'", {"a": "x"}, "can't stand in the braces of an f-string"),
        ("x = 1\nf{{ a }}", {"a": "{x}"}, "line 2: a value can't be a part of a name"),
        ("import {{ a }}", {"a": "os"}, "a value can't be a part of a name"),
        ("f({{ a }}=1)", {"a": "x"}, "a value can't be a part of a name"),
        ("''{{ a }}", {"a": "x"}, "line 1: invalid syntax"),
        ("{{ a }}{{ a }}", {"a": "x"}, "a value can't be a part of a name"),
        ('"\\{{ a }}"', {"a": '"'}, "write it as two"),
        ('"\\x{{ a }}"', {"a": "41"}, "can't decode bytes"),
        ("f'{x:{{ a }}}'", {"a": "{y}"}, "'{y}' is not a format"),
        ("'{{ a }}", {"a": "x"}, "unterminated string literal"),
        ("{{ a", {"a": "x"}, "line 1: '{{' is not supported"),
        ("1\n{{ b }}", {"a": "x"}, "line 2: it uses b, which is not a parameter"),
        ("{{ a.b }}", {"a": {}}, "'{{ a.b }}' is not supported: write Python around {{ name }}"),
        ("{% include 'x' %}", {}, "not supported"),
        ("{{ a|safe }}", {"a": "x"}, "not supported"),
        ("{# note #}", {}, "not supported"),
        ("x\n{% for x in range(2) %}\n{% endfor %}", {}, "line 2: '{% for x in range(2) %}' is not supported"),
    ],
)
def test_what_the_body_can_not_say_is_refused(text, values, words):
    with pytest.raises(SnippetError) as caught:
        body(text, **values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


FORMS = [prefix + quote for prefix in ("", "F") for quote in ("'", '"', "'''", '"""')]


@given(TEXTS)
@pytest.mark.parametrize("form", FORMS)
def test_any_text_in_any_quotes_is_that_text(form, value):
    quote = form.lstrip("F")
    code = body(f"{form}a {{{{ v }}}}{{{{ v }}}} z{{{{ v }}}}{quote}", v=value)
    assert eval(code) == f"a {value}{value} z{value}"


@given(TEXTS)
@pytest.mark.parametrize("form", ["r'", 'R"', "r'''", 'r"""', "rf'", 'fR"""'])
def test_any_text_in_a_raw_literal_is_that_text_or_refused(form, value):
    quote = form.lstrip("rRfF")
    try:
        code = body(f"{form}{{{{ v }}}}{quote}", v=value)
    except SnippetError:
        assert {"\\", "'", '"'}.intersection(value) or not value.isprintable()
    else:
        assert eval(code) == value


@given(TEXTS)
def test_any_text_in_bytes_is_its_utf8(value):
    assert eval(body("b'{{ v }}'", v=value)) == value.encode()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**100), 2**100), st.floats(-1e300, 1e300), TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_any_data_outside_of_quotes_is_that_data(value):
    assert ast.literal_eval(body("{{ v }}", v=[value])) == [value]


@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_any_object_as_json_in_the_call(value):
    assert values_of(f"$research topic=x more={json.dumps(value)}")["more"] == value


@given(TEXTS)
def test_any_quoted_text_in_the_call(value):
    assert values_of(f"$research topic={json.dumps(value)} count=3")["topic"] == value


@given(TEXTS)
def test_no_call_ends_in_another_exception(text):
    try:
        said = ascii(expand(f"$research{text}", SNIPPETS))
    except SnippetError as error:
        said = str(error)
    assert "\n" not in said


PIECES = [
    "x = {{ v }}\n",
    "f('{{ v }}', n=1)  # {{ v }} '\n",
    'y = "{{ v }}" if x else \'"\' + "{{ v }}"\n',
    '"""\n\'{{ v }}\' # {{ v }}\n"""\n',
    "# it's {{ v }}\n",
    "g(f'{a}{{ v }}{b!r:>{c}} {d[\"k\"]}')\n",
    "g(f'''{a} \" {{ v }}''')\n",
    "h('\\'', \"\\\"{{ v }}\", '\\\\')\n",
    "h(b'{{ v }}', '''it's \\''' {{ v }}''')\n",
    "k(rb'\\\\', '{{ v }}')\n",
    "if a:\n    '\\N{BULLET}{{ v }}'\n",
    "z = [{{ v }}, {'{{ v }}': {{ v }}}]\n",
]


class _Masked(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant(value=type(node.value).__name__), node)


def shape(code: str) -> str:
    return ast.dump(_Masked().visit(ast.parse(code)))


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), TEXTS.filter(bool))
def test_a_value_never_changes_the_code_around_it(pieces, value):
    text = "".join(pieces)
    assert shape(body(text, v=value)) == shape(body(text, v="tea"))


def test_the_sandbox_reads_them_as_we_do():
    """F-strings in particular, where Python 3.11 reads less than the sandbox does."""
    bodies = [
        "f'{{ v }}'",
        "f'{x}{{ v }}'[1:]",
        "'{{ v }}'",
        '"""{{ v }}"""',
        "f'\\N{BULLET}{{ v }}'[1:]",
        "{'{{ v }}': 1}.popitem()[0]",
    ]
    values = ["", "a'b\"c", "{x}", "\\", "\\'", '\\"', "'''", '"""', "\n\r\0\t", "é🦊\u2028\U000f0000", "}{", "# }"]
    with sandboxed() as run:
        run("x = 1")
        for text in bodies:
            for value in values:
                assert run(body(text, v=value)) == value, text


@pytest.mark.parametrize(
    "call",
    ["$research topic=" + " " * 50_000 + "x", "$research topic=" + "a " * 50_000, "$research topic='" + "\\" * 100_001],
)
def test_long_calls_are_read_quickly(call):
    with calls(1_000_000), contextlib.suppress(SnippetError):
        expand(call, SNIPPETS)
