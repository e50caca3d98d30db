"""Errors name the line that failed, whatever they pass on their way out. What Python itself names is what is right."""

import ast
import asyncio

import pytest
from helpers import each

from onetool import App, ToolSpec
from onetool.core.errors import ToolFailure
from onetool.script.error_lines import ERROR, traced_code
from onetool.script.parse import CodeScan

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

# What is noted is the first line of a statement: of the part of it that failed nobody knows.
UNKNOWN = {
    "a long call": "it names the line that the statement begins on",
    "elif": "it names the line of the if",
    "a lambda": "it names the line that calls it",
}


class Tools:
    @staticmethod
    def fail(text):
        raise RuntimeError(text)


def line_in_python(code):
    """The innermost line of the code in the traceback of what it raises."""
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
        return lines[-1]
    raise AssertionError(f"it does not fail: {names}")


@pytest.fixture(scope="module")
def failing(scripts_for_module):
    def fail(text):
        raise ToolFailure(text)

    scripts_for_module.tool("t.fail", fail, "text", text={"type": "string"})
    return scripts_for_module


def programs():
    for name in PROGRAMS:
        why = UNKNOWN.get(name)
        yield pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=why)] if why else [])


@pytest.mark.parametrize("name", list(programs()))
def test_the_line_that_failed_is_the_one_that_python_names(failing, name):
    code = PROGRAMS[name]
    line = line_in_python(code)
    told = [hint for hint in failing.error(code).hints if hint.startswith("line ")]
    assert [hint.partition(":")[0] for hint in told] == [f"line {line}"]
    assert told[0].partition(": ")[2] == code.split("\n")[line - 1].strip()


# What is added to the code changes nothing else


def without_ours(tree):
    """The tree of watched code, without what was added."""

    class Taken(ast.NodeTransformer):
        def visit_Try(self, node):
            self.generic_visit(node)
            ours = any(handler.name == ERROR for handler in node.handlers)
            return node.body if ours else node

    tree.body = tree.body[1:]
    return ast.dump(Taken().visit(tree))


SHAPES = {
    "elif": "with a:\n  if b: c\n  elif d:\n    e\n  elif f: g; h\n  else: i\nelse_ = 1",
    "match": "try:\n  match a:\n    case 1: b\n    case (2 |\n      3):\n      c\nfinally: d",
    "brackets": "try:\n  a = [\n1,\n    2]; b = 3\n  if (c and\nd): e\nexcept f: g",
    "a backslash": "try:\n  a = 1 + \\\n2\n  b = 'x\\\n  y'\nfinally:\n  c",
    "definitions": (
        "class A:\n  '''doc'''\n  x = 1\n  @b\n  async def f(self): return 1\n  def g(self):\n    '''doc'''\n    pass\n"
        "    global y; y = 2\ntry: pass\nexcept: pass"
    ),
    "everything else": (
        "for a in b:\n  while c:\n    try:\n      d\n    except e as f:\n      g  # h\n"
        "      continue\n    else: break\n"
        "    finally:\n\n      # i\n      j\n  else:\n    with k as l, m: n\nelse: o"
    ),
    "letters of several bytes": "try:\n  ä = 'ö'; ü(ä)\n  if 'ß': ü('é')\nfinally: ä",
}


@each("code", [*PROGRAMS.values(), *SHAPES.values()])
def test_watched_code_is_the_same_code_on_the_same_lines(code):
    found = traced_code(CodeScan(code))
    if found is None:
        assert not {"try", "with"} & set(code.replace(":", " ").split())
        return
    assert found.code.count("\n") == code.count("\n")
    assert without_ours(ast.parse(found.code)) == ast.dump(ast.parse(code))


def test_code_that_loses_no_lines_is_not_touched():
    assert traced_code(CodeScan("def f(x):\n    return 1 / x\nif f(1):\n    f(0)")) is None


def test_futures_are_where_they_have_moved_to():
    code = "try:\n ä = 'ö'; a = await t.f(1)\n if a: await asyncio.gather(t.f(2),\nt.f(3))\nfinally:\n await t.f(4)"
    found = traced_code(CodeScan(code))
    data = found.code.encode()
    assert sorted(data[start:end].decode() for start, end in found.futures) == [
        "asyncio.gather(t.f(2),\n  t.f(3))",
        *(f"t.f({n})" for n in (1, 2, 3, 4)),
    ]


SAME = {
    "return in finally": "def f():\n  try:\n    1 / 0\n  finally:\n    return 5\nf()",
    "continue in finally": "n = 0\nfor i in range(3):\n  try:\n    1 / 0\n  finally:\n    n += 1\n    continue\nn",
    "return through two": (
        "seen = []\ndef f():\n  for i in range(5):\n    try:\n      try:\n        if i == 2: return i\n"
        "      finally:\n        seen.append(i)\n    finally:\n      seen.append('x')\n[f(), seen]"
    ),
    "names of errors": (
        "def f():\n  e = 1\n  try:\n    1 / 0\n  except ZeroDivisionError as e:\n    kept = str(e)\n"
        "  try:\n    return e\n  except NameError as e:\n    return kept\nf()"
    ),
    "raise outside of except": (
        "try:\n  try:\n    raise\n  finally:\n    pass\nexcept RuntimeError as e:\n  x = str(e)\nx"
    ),
    "raise twice": (
        "seen = []\ntry:\n  try:\n    1 / 0\n  except ZeroDivisionError as a:\n    try:\n      {}['k']\n"
        "    except KeyError as b:\n      seen.append('k')\n    raise\nexcept Exception as c:\n"
        "  seen.append(str(c))\nseen"
    ),
    "recursion to its end": (
        "def f(n):\n  try:\n    return f(n + 1)\n  except RecursionError:\n    return 'deep'\n"
        "  finally:\n    n = 0\nf(0)"
    ),
    "globals and nonlocals": (
        "x = 1\ndef f():\n  global x\n  y = 1\n  def g():\n    nonlocal y\n    try:\n      y = 2\n"
        "    finally:\n      y += 1\n  g()\n  try: x = y\n  finally: x += 1\n  return x\n[f(), x]"
    ),
    "a method's private name": (
        "class C:\n  def __init__(self):\n    self.__n = 1\n  def f(self):\n    try:\n      return self.__n\n"
        "    except KeyError:\n      return 2\nC().f()"
    ),
}


@each("name", SAME)
def test_what_code_does_is_what_python_does(failing, name):
    code = SAME[name]
    *before, last = ast.parse(code).body
    names = {}
    exec(compile(ast.Module(before, []), "<code>", "exec"), names)
    expected = eval(compile(ast.Expression(last.value), "<code>", "eval"), names)
    assert failing.value(code) == expected


def test_a_body_that_is_too_large_when_watched_runs_as_it_is(failing):
    body = "\n".join(f"    a = {n}" for n in range(1500))
    assert failing.value(f"try:\n{body}\nfinally:\n    b = 1\na") == 1499


def test_a_limit_is_told_with_its_own_line(failing):
    caught = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n"
    error = failing.error(f"{caught}try:\n    x = 'a'\n    while True:\n        x += x\nfinally:\n    y = 1")
    assert error.hints[0] == "line 8: x += x"


def test_code_of_a_session_knows_its_own_lines_only(failing):
    session = failing.app.runtime.engine.session(failing.app.catalog.registry.snapshot())

    def told(code):
        error = asyncio.run(session.run(code)).error
        return error.hints[0] if error else None

    assert told("def f(x):\n    try:\n        return 1 / x\n    finally:\n        y = 1") is None
    assert told("x = 1\ny = 2\nz = 3\nf(0)") == "line 4: f(0)"
    assert told("x = 1\ntry:\n    y = 2\n    f(0)\nfinally:\n    y = 3") == "line 4: f(0)"
    assert told("try:\n    (\nfinally: x") == "line 3: finally: x"
    assert told("try:\n    x = 2\n    del x\nfinally:\n    y = 3") == "line 3: del x"
    assert told("try:\n    x = 2\n    1 / 0\nfinally:\n    y = 3") == "line 3: 1 / 0"
    large = "\n".join("    a = 1" for _ in range(1500))
    assert told(f"try:\n{large}\n    1 / 0\nexcept ValueError:\n    pass") is not None
    assert told("1 / 0") == "line 1: 1 / 0"
    session.close()


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
    assert raised.hints[0] == "line 3: y = 1 / 0"
