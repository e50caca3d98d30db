"""Errors name the line that failed, whatever they pass on their way out. What Python itself names is what is right."""

import ast
import asyncio

import pytest
from helpers import each

from onetool import App, ToolSpec
from onetool.core.errors import ToolFailure

PROGRAMS = {
    "plain": "x = 1\ny = x / 0\nz = 2",
    "finally": "try:\n  x = 1\n  y = x / 0\n  z = 2\nfinally:\n  a = 1\n  b = 2",
    "finally that prints": "try:\n  {}['k']\nfinally:\n  print('done')",
    "finally that calls": "def clean(n):\n  m = n + 1\n  return m\ntry:\n  {}['k']\nfinally:\n  clean(1)",
    "finally with an if at its end": "try:\n  [][1]\nfinally:\n  if 1 > 2:\n    x = 1\n  else:\n    x = 2",
    "finally within finally": "try:\n  try:\n    1 / 0\n  finally:\n    a = 1\nfinally:\n  b = 1",
    "finally that fails": "try:\n  x = 1\nfinally:\n  {}['a']\n  b = 1",
    "finally that fails after an error": "try:\n  1 / 0\nfinally:\n  a = 1\n  {}['a']\n  b = 1",
    "finally in one line": "x = 1\ntry: 1 / 0\nfinally: x = 2",
    "raise": "try:\n  x = 1\n  1 / 0\nexcept ZeroDivisionError:\n  x = 2\n  raise",
    "raise the same": "try:\n  1 / 0\nexcept ZeroDivisionError as error:\n  x = 2\n  raise error",
    "raise another": "try:\n  1 / 0\nexcept ZeroDivisionError:\n  x = 2\n  raise ValueError('no')\nx = 3",
    "raise from": "try:\n  1 / 0\nexcept ZeroDivisionError as error:\n  raise ValueError('no') from error",
    "raise in the middle": "try:\n  1 / 0\nexcept ZeroDivisionError:\n  if 2 > 1:\n    raise ValueError('no')\n  x = 3",
    "raise, then finally": "try:\n  1 / 0\nexcept ValueError:\n  x = 2\n  raise\nfinally:\n  x = 3",
    "an except that fails": "try:\n  1 / 0\nexcept ZeroDivisionError:\n  {}['a']\n  x = 1\n  y = 2",
    "an except that does not match": "try:\n  1 / 0\nexcept KeyError:\n  x = 1\n  y = 2\nz = 3",
    "two that do not match": "try:\n  1 / 0\nexcept KeyError:\n  x = 1\nexcept (ValueError, IndexError) as e:\n  y = 2",
    "else that fails": "try:\n  x = 1\nexcept KeyError:\n  x = 2\nelse:\n  x / 0\n  y = 1\nz = 1",
    "else that fails, then finally": (
        "try:\n  x = 1\nexcept KeyError:\n  x = 2\nelse:\n  x / 0\n  y = 1\nfinally:\n  z = 1"
    ),
    "with": (
        "class C:\n  def __enter__(self):\n    return self\n  def __exit__(self, *a):\n    x = 1\n    return False\n"
        "with C() as c:\n  x = 1\n  {}['k']\n  y = 2\nz = 1"
    ),
    "an exit that fails": (
        "class C:\n  def __enter__(self):\n    return self\n  def __exit__(self, *a):\n    x = 1\n    return 1 / 0\n"
        "with C() as c:\n  x = 1\n  y = 2\nz = 1"
    ),
    "what with is given": "try:\n  with open_it:\n    x = 1\n    y = 2\nfinally:\n  z = 1".replace(
        "open_it", "{}['k']"
    ),
    "a function": "def f(x):\n  y = 1\n  return y / x\ntry:\n  f(1)\n  f(0)\nfinally:\n  z = 1",
    "finally in a function": "def f(x):\n  try:\n    return 1 / x\n  finally:\n    y = 1\n    z = 2\nf(0)",
    "a function that came back": "def f(x):\n  y = 1\n  return y\ntry:\n  z = f(1) / 0\nfinally:\n  z = 1",
    "recursion": "def f(n):\n  try:\n    return 1 / n + f(n - 1)\n  finally:\n    x = 1\n    y = 2\nf(3)",
    "a function of a function": (
        "def f():\n  def g():\n    return {}['k']\n  return g()\ntry:\n  f()\nfinally:\n  x = 1"
    ),
    "a method": (
        "class C:\n  def f(self):\n    '''What it does.'''\n    return [][1]\ntry:\n  C().f()\nfinally:\n  x = 1"
    ),
    "a lambda": "f = lambda x: 1 / x\ntry:\n  x = 1\n  f(0)\nfinally:\n  x = 2",
    "a loop": "for n in [2, 1, 0]:\n  try:\n    x = 1\n    y = 1 / n\n  finally:\n    z = 1",
    "a loop with else": "try:\n  for n in [2, 1]:\n    x = 1\n  else:\n    {}['k']\n    y = 1\nfinally:\n  z = 1",
    "the head of a loop": "try:\n  x = 1\n  for n in 5:\n    x = 1\n    y = 2\nfinally:\n  z = 1",
    "the head of a while": "try:\n  x = 2\n  while 1 / x:\n    y = 2\n    x -= 1\nfinally:\n  z = 1",
    "the head of an if": "try:\n  x = 0\n  if 1 / x:\n    y = 2\n  z = 1\nfinally:\n  z = 1",
    "break in finally": "for n in [1]:\n  try:\n    1 / 0\n  finally:\n    break\nx = {}['k']",
    "return in finally": "def f():\n  try:\n    1 / 0\n  finally:\n    return 5\nx = 1\ny = f() / 0",
    "caught, then another": "try:\n  1 / 0\nexcept ZeroDivisionError:\n  pass\nx = 1\n1 / 0",
    "caught, then the same in finally": (
        "try:\n  1 / 0\nexcept ZeroDivisionError:\n  pass\ntry:\n  x = 1\n  1 / 0\nfinally:\n  x = 2"
    ),
    "two on a line": "try:\n  x = 1; y = x / 0; z = 3\nfinally:\n  x = 1; y = 2",
    "a body on the line of its head": "try:\n  if True: x = 1; 1 / 0\nfinally:\n  x = 1",
    "a text of many lines": (
        "try:\n  x = '''a\nb\n   c'''\n  if x:\n    y = f'''{x}\n z'''\n    {}['k']\nfinally:\n  x = 1"
    ),
    "a comment at the end": "try:\n  x = 1  # one\n  1 / 0  # two\n  # three\nfinally:  # four\n  x = 1  # five\n# six",
    "tabs": "try:\n\tx = 1\n\tif x:\n\t\t1 / 0\n\ty = 1\nfinally:\n\tx = 1",
    "assert": "try:\n  x = 1\n  assert x == 2\n  y = 1\nfinally:\n  x = 1",
    "async": "async def f(x):\n  y = 1\n  return 1 / x\ntry:\n  await f(0)\nfinally:\n  x = 1",
    "async with finally": "async def f(x):\n  try:\n    return 1 / x\n  finally:\n    x = 1\nawait f(0)",
    "a tool": "try:\n  x = 1\n  t.fail('no')\n  y = 1\nfinally:\n  z = 1",
    "a tool, raised again": "try:\n  x = 1\n  t.fail('no')\nexcept RuntimeError as e:\n  print(e)\n  raise",
    "a tool that fails twice": "try:\n  t.fail('no')\nexcept RuntimeError:\n  x = 1\nx = 2\nt.fail('no')",
    "a tool in a function": "def f():\n  x = 1\n  return t.fail('no')\ntry:\n  f()\nfinally:\n  z = 1",
    "a name that is not there": "try:\n  x = 1\n  y = [n for n in [1] if n / 0]\nfinally:\n  z = 1",
    "a long call": "try:\n  x = max(\n    1,\n    1 / 0,\n  )\nfinally:\n  z = 1",
    "elif": "try:\n  x = 0\n  if x:\n    y = 1\n  elif 1 / x:\n    y = 2\nfinally:\n  z = 1",
    "gather": (
        "import asyncio\nasync def f(x):\n  y = 1\n  return 1 / x\ntry:\n"
        "  await asyncio.gather(f(1), f(0))\nfinally:\n  x = 1"
    ),
}


class Tools:
    @staticmethod
    def fail(text):
        raise RuntimeError(text)


def lines_in_python(code):
    """The lines of the code in the traceback of what it raises, the innermost last."""
    compiled = compile(code, "<code>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        made = eval(compiled, names := {"t": Tools, "print": lambda *_: None})
        if made is not None:
            asyncio.run(made)
    except Exception as error:
        lines, at = [], error.__traceback__
        while at is not None:
            if at.tb_frame.f_code.co_filename == "<code>":
                lines.append(at.tb_lineno)
            at = at.tb_next
        return lines
    raise AssertionError(f"it does not fail: {names}")


@pytest.fixture(scope="module")
def failing(scripts_for_module):
    def fail(text):
        raise ToolFailure(text)

    scripts_for_module.tool("t.fail", fail, "text", text={"type": "string"})
    return scripts_for_module


@each("name", PROGRAMS)
def test_the_line_that_failed_is_the_one_that_python_names(failing, name):
    """An error that passes through `try` or `with` names the lines of that statement."""
    code = PROGRAMS[name]
    lines = lines_in_python(code)
    (told,) = [hint for hint in failing.error(code).hints if hint.startswith("line")]
    where, _, shown = told.partition(": ")
    first, last = [int(word) for word in where.split() if word.isdigit()] * (2 if where.startswith("line ") else 1)
    assert shown == code.split("\n")[first - 1].strip()
    if first == last:
        assert first == lines[-1]
    else:
        assert any(first <= line <= last for line in lines)
        assert code.split("\n")[first - 1].strip().startswith(("try", "with"))


def test_a_limit_is_told_with_its_own_line(failing):
    caught = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n"
    error = failing.error(f"{caught}try:\n    x = 'a'\n    while True:\n        x += x\nfinally:\n    y = 1")
    assert error.hints[0] == "line 8: x += x"


def test_the_type_checker_names_the_lines_of_the_code(tmp_path):
    config = tmp_path / "onetool.yaml"
    config.write_text("stats: {enabled: false}\nrun: {typecheck: true}\n")
    spec = ToolSpec(
        name="t.f",
        description="d",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        handler=lambda n: n,
    )
    app = App.open(config)
    app.catalog.registry.register(spec)
    try:
        wrong = asyncio.run(app.run("try:\n    x = 'a'\n    y = 1\n    t.f(n=x)\nfinally:\n    z = 1")).error
        raised = asyncio.run(app.run("try:\n    x = 1\n    y = 1 / 0\n    t.f(n=x)\nfinally:\n    z = 1")).error
    finally:
        app.close()
    assert (wrong.reason, wrong.message.partition(":")[0]) == ("check", "line 4")
    assert raised.hints[0] == "lines 1 to 6: try:"
