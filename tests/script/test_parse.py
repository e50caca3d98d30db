"""Whatever way code is sent, what runs is the code: fences, line ends and indentation go, its strings stay."""

import ast
import textwrap

import pytest
from helpers import each, examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onetool.script.parse import MAX_BYTES, ScriptError, parse, read

FENCED = {
    "backticks": "```\nx = 1\n```",
    "with a language": "```python\nx = 1\n```",
    "with a short language": "```py\nx = 1\n```",
    "with more than a language": "```python title='a.py' {1}\nx = 1\n```",
    "with a space before the language": "``` python\nx = 1\n```",
    "tildes": "~~~\nx = 1\n~~~",
    "tildes with a language": "~~~python\nx = 1\n~~~",
    "four backticks": "````python\nx = 1\n````",
    "closed with more": "```python\nx = 1\n`````",
    "indented": "    ```python\n    x = 1\n    ```",
    "indented with a tab": "\t```python\n\tx = 1\n\t```",
    "a fence that is indented alone": "  ```python\nx = 1\n  ```",
    "words before": "Here is the code:\n\n```python\nx = 1\n```",
    "words around": "Here it is:\n```python\nx = 1\n```\nThat's all; it's done.",
    "blank lines around": "\n\n```python\nx = 1\n```\n\n",
    "never closed": "```python\nx = 1\n",
    "never closed, no line end": "```python\nx = 1",
    "windows": "```python\r\nx = 1\r\n```\r\n",
    "old mac": "```python\rx = 1\r```",
    "with a byte order mark": "\ufeff```python\nx = 1\n```",
    "with spaces at the ends": "```python  \nx = 1\n```  ",
}


@each("text", FENCED.values())
def test_fences_go(text):
    assert read(text).strip() == "x = 1"


@each(
    "code",
    [
        "t.f(n=1)",
        "x = 1\nx\n",
        'x="é"; x',
        "# only a comment",
        "",
        "\n\nx = 1",
        "if 1:\n\tx = 1",
        'x = """\n```python\ny = 2\n```\n"""',
        "x = '''\n~~~\n'''\ny = 1",
        "x = '```'",
        "x = 1 # ```",
    ],
)
def test_code_without_fences_stays_as_it_is(code):
    assert read(code) == code


@each(
    ("text", "code"),
    [
        ("\ufeffx = 1", "x = 1"),
        ("x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        ("x = 1\ry = 2", "x = 1\ny = 2"),
        ("    x = 1\n    y = 2", "x = 1\ny = 2"),
        ("\tx = 1\n\tif x:\n\t\ty = 2", "x = 1\nif x:\n\ty = 2"),
        ("\n    x = 1\n\n    y = 2\n", "\nx = 1\n\ny = 2\n"),
        ("    x = 1\n    # a comment\n  # another\n    y = 2", "x = 1\n# a comment\n  # another\ny = 2"),
        ('    x = """a\n      b\n  c"""\n    x', 'x = """a\n      b\n  c"""\nx'),
        ("    x = f'''{1}\n    {2}'''\n    x", "x = f'''{1}\n    {2}'''\nx"),
        ("    x = (1,\n    2)\n    x", "x = (1,\n2)\nx"),
    ],
)
def test_line_ends_and_indentation(text, code):
    assert read(text) == code


def test_a_fence_inside_of_a_string_inside_of_a_fence_stays():
    code = 'note = """\n```python\nprint(1)\n```\n"""\nnote\n'
    assert read(f"```python\n{code}```") == code
    assert read(f"Look:\n```python\n{code}```\nDone.") == code


def test_code_that_can_not_be_right_keeps_its_fence_off():
    assert read("```python\nx = (\n```") == "x = (\n"


def test_words_without_code_stay_and_fail_as_code(scripts):
    error = scripts.error("Here is what I would do: nothing.")
    assert (error.code, error.reason) == ("invalid_args", "syntax")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("```python\nx = 'é'\nx\n```", "é"),
        ('x="é"; x', "é"),
        ("    x = 1\n    x + 1", 2),
        ("x = '''\n    a\n'''\nx", "\n    a\n"),
        ("    x = '''\n    a\n'''\n    x", "\n    a\n"),
        ("1 + 1", 2),
    ],
    ids=repr,
)
def test_it_runs(scripts, text, value):
    assert scripts.value(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [("x = 1\ny = '\0'", "line 2"), ("x" * (MAX_BYTES + 1), "1 MiB"), ("é" * (MAX_BYTES // 2 + 1), "1 MiB")],
    ids=["null", "long", "long in bytes"],
)
def test_what_can_not_be_code(text, words):
    with pytest.raises(ScriptError, match=words):
        read(text)


def test_odd_escapes_are_not_our_business():
    assert parse(r"x = '\d'") is not None


def test_a_parser_that_was_disturbed_is_asked_again(monkeypatch):
    real, disturbed = ast.parse, [SystemError("AST constructor recursion depth mismatch")]

    def disturbed_once(code):
        if disturbed:
            raise disturbed.pop()
        return real(code)

    monkeypatch.setattr(ast, "parse", disturbed_once)
    assert parse("x = 1") is not None


# Any code

TEXT = st.text(st.sampled_from("ab é𝄞\n\t `~\"'{}\\#") | st.characters(codec="utf-8", exclude_characters="\r\0"))
NAMES = st.sampled_from(["x", "y", "größe"])


def triple(text, quote):
    """A triple-quoted literal with this text in it, as it stands."""
    return quote * 3 + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote * 3


STRINGS = st.builds(triple, TEXT, st.sampled_from("\"'")) | TEXT.map(repr)
STATEMENTS = st.one_of(
    st.builds("{} = {}".format, NAMES, STRINGS),
    st.builds("t.f({}, n={})".format, STRINGS, NAMES),
    st.builds("def f({0}):\n    {1}\n    return {0}".format, NAMES, STRINGS),
    st.builds("if {0}:\n    {0} = {1}\nelse:\n    pass".format, NAMES, STRINGS),
    st.builds("for {0} in {1}:\n\n    # {0}\n    print({0})".format, NAMES, STRINGS),
    st.sampled_from(["import json", "# a comment", "", "x = [\n1,\n  2,\n]", "x = 1; y = 2", "f'''{x}\n {y!r}'''"]),
)
CODE = st.lists(STATEMENTS, min_size=1, max_size=5).map("\n".join)


def same(one, other):
    return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))


@settings(max_examples=examples(200))
@given(CODE)
def test_any_code_stays_as_it_is(code):
    assume(code.lstrip("\n")[:1] not in (" ", "\t", "`", "~"))
    assert read(code) == code


@settings(max_examples=examples(200))
@given(CODE, st.sampled_from(["```", "~~~", "`````"]), st.sampled_from(["", "python", "py"]), st.booleans())
def test_any_code_comes_out_of_its_fence(code, fence, language, with_words):
    text = f"{fence}{language}\n{code}\n{fence}"
    assert same(read(f"Here:\n\n{text}\n\nIt's done." if with_words else text), code)


@settings(max_examples=examples(200))
@given(CODE, st.sampled_from(["    ", "\t", " "]))
def test_any_indented_code_keeps_its_strings(code, indent):
    inside = strings_lines(code)
    lines = code.split("\n")
    text = "\n".join(line if number in inside or not line else indent + line for number, line in enumerate(lines, 1))
    assume(parse(f"if 1:\n{text}") is not None)
    assert same(read(text), code)


def strings_lines(code):
    return {
        number
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Constant | ast.JoinedStr) and hasattr(node, "lineno")
        for number in range(node.lineno + 1, node.end_lineno + 1)
    }


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        assert isinstance(read(text), str)
    except ScriptError:
        assert "\0" in text


def test_textwrap_would_spoil_what_we_keep():
    """Why it is not simply dedented."""
    code = "    x = '''\n    a'''"
    assert (textwrap.dedent(code), read(code)) == ("x = '''\na'''", "x = '''\n    a'''")


def test_of_several_fenced_blocks_none_is_run_in_silence():
    with pytest.raises(ScriptError, match="several fenced blocks"):
        read("First:\n```python\nx = 1\n```\nthen:\n```python\ny = 2\n```\n")
