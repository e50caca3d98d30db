"""What went wrong, told so that it can be repaired: the line, the way around, the tool's own words. And shortly."""

import asyncio
import re

import pytest
from helpers import NO_ARGUMENTS, each

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.principal import owner
from onetool.script.failures import MISSING_MODULES
from onetool.script.names import MISSING_BUILTINS
from onetool.sdk import call_tool
from onetool.services.results import NotStoredError
from onetool.services.results.store import ResultStore

ASYNCIO = "import asyncio\n"


def told(error):
    return " | ".join((error.message, *error.hints))


def is_short(error):
    return len(error.message) + sum(len(hint) for hint in error.hints) < 480  # less than 120 tokens


# Syntax: nothing has run


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("t.f()\nx = (1,", "line 2"),
        ("t.f()\nfor i in range(3)\n    pass", "line 2: for i in range(3)"),
        ("t.f()\nx = 1\n  y = 2", "line 3: y = 2"),
        ("t.f()\nprint 'x'", "line 2: print 'x'"),
        ("t.f()\n'abc", "line 2: 'abc"),
        ("```python\nt.f()\nif True:\npass\n```", "line 3: pass"),
    ],
)
def test_syntax_errors_name_the_line_and_nothing_has_run(scripts, code, line):
    ran = []
    scripts.tool("t.f", lambda: ran.append(1))
    error = scripts.error(code)
    assert (error.code, error.reason) == ("invalid_args", "syntax")
    assert error.message.startswith("SyntaxError: ")
    assert error.hints[0].startswith(line)
    assert is_short(error)
    assert ran == []


# What the sandbox's Python does not have


MISSING = {
    "yield": ("def f():\n    yield 1", "line 2: yield 1", "list"),
    "yield from": ("def f():\n    yield from [1]", "line 2", "list"),
    "del": ("x = 1\ndel x", "line 2: del x", "pop"),
    "inheritance": ("class A:\n    pass\nclass B(A):\n    pass", "line 3: class B(A):", "without a base"),
    "own exceptions": ("class Wrong(Exception):\n    pass", "line 1: class Wrong(Exception):", "ValueError"),
    "a property": ("class A:\n    @property\n    def x(self):\n        pass", "line 2: @property", "without"),
    "async with": ("async def f(x):\n    async with x:\n        pass", "line 2: async with x:", "gather"),
    "async for": ("async def f(x):\n    async for i in x:\n        pass", "line 2: async for i in x:", "plain for"),
    "except*": ("try:\n    pass\nexcept* ValueError:\n    pass", "line 1: try:", "plain except"),
    "import *": ("from math import *", "line 1: from math import *", "import the names"),
    "a module that nobody has": ("x = 1\nimport numpy", "line 2: import numpy", "statistics"),
    "a module that was mistyped": ("import statistic", "line 1: import statistic", "did you mean statistics?"),
    "threads": ("import threading", "line 1: import threading", "asyncio.gather"),
    "the network": ("import requests", "line 1: import requests", "tool"),
    "programs": ("import subprocess", "line 1: import subprocess", "tool"),
    "programs of os": ("import os\nos.system('ls')", "line 2: os.system('ls')", "tool"),
    "files": ("open('/etc/passwd')", "line 1: open('/etc/passwd')", "fs.read_file"),
    "paths": ("from pathlib import Path\nPath('x').read_text()", "line 2", "fs.read_file"),
    "the environment": ("import os\nos.environ['HOME']", "line 2: os.environ['HOME']", "get_secret"),
    "a variable of it": ("import os\nos.getenv('HOME')", "line 2: os.getenv('HOME')", "get_secret"),
    "an end": ("import sys\nsys.exit()", "line 2: sys.exit()", "let the code end"),
    "SystemExit": ("raise SystemExit", "line 1: raise SystemExit", "let it end"),
    "map over a tool": ("list(map(t.f, [1]))", "line 1: list(map(t.f, [1]))", "list comprehension"),
    "a lambda in map": ("list(map(lambda n: t.f(n), [1]))", "line 1", "list comprehension"),
    "sorted by a tool": ("sorted([1, 2], key=t.f)", "line 1", "list comprehension"),
    "return_exceptions": (
        ASYNCIO + "await asyncio.gather(t.f(1), return_exceptions=True)",
        "line 2: await asyncio.gather(t.f(1), return_exceptions=True)",
        "try/except",
    ),
    "tasks": (ASYNCIO + "asyncio.create_task(t.f(1))", "line 2: asyncio.create_task(t.f(1))", "gather"),
    "wait_for": (ASYNCIO + "await asyncio.wait_for(t.f(1), 3)", "line 2", "gather"),
    "semaphores": (ASYNCIO + "asyncio.Semaphore(2)", "line 2: asyncio.Semaphore(2)", "gather"),
    "endless recursion": ("def f():\n    return f()\nf()", "line 2: return f()", "use a loop"),
    **{name: (f"x = 1\n{name}(x)", f"line 2: {name}(x)", "") for name in MISSING_BUILTINS if name != "open"},
}


@each("name", MISSING)
def test_what_is_missing_is_told_with_its_line_and_the_way_around(small, name):
    code, line, way = MISSING[name]
    error = small.error(code)
    place = line.partition(":")[0] if error.reason == "check" else line
    assert any(one.startswith(place) for one in (error.message, *error.hints))
    assert way in told(error)
    assert len(error.hints) >= 2 or way in error.message
    assert is_short(error)


@each("module", MISSING_MODULES)
def test_modules_that_are_missing_are_missing(small, module):
    """At the top they are told before anything has run, elsewhere when they are reached."""
    name = "urllib.request" if module == "urllib" else module
    assert MISSING_MODULES[module] in small.error(f"import {name}").message
    assert MISSING_MODULES[module] in small.error(f"if True:\n    import {name}").hints


@pytest.fixture(scope="module")
def small(scripts_for_module):
    scripts_for_module.tool("t.f", lambda n: n, n={})
    return scripts_for_module


# What the code itself did wrong


@each(
    ("code", "message", "line"),
    [
        ("x = 1\nx / 0", "ZeroDivisionError: division by zero", "line 2: x / 0"),
        ("def f(x):\n    return x['a']\nf({})", "KeyError: a", "line 2: return x['a']"),
        ("raise ValueError('the yield is low: no')", "ValueError: the yield is low: no", "line 1: raise"),
        ("raise RuntimeError('account suspension')", "RuntimeError: account suspension", "line 1: raise"),
        ("raise TimeoutError('mine')", "TimeoutError: mine", "line 1: raise"),
        ("raise ValueError", "ValueError", "line 1: raise ValueError"),
        ("assert 1 == 2, 'no'", "AssertionError: no", "line 1: assert"),
        ("nothing", "NameError: name 'nothing' is not defined", "line 1: nothing"),
        ("t.g", "AttributeError: 't' object has no attribute 'g'", "line 1: t.g"),
    ],
)
def test_exceptions_of_the_code(small, code, message, line):
    error = small.error(code)
    assert (error.code, error.reason) == ("execution_error", None)
    assert error.message.startswith(message)
    assert len(error.hints) == 1
    assert error.hints[0].startswith(line)


def test_a_name_that_is_nearly_one_of_ours(small):
    assert "did you mean fs?" in small.error("fss").hints


def test_lines_are_those_of_the_text_that_was_sent(small):
    error = small.error("```python\nimport statistics\n\nx = statistics.mean([1])\nx / 0\n```")
    assert error.hints[0] == "line 4: x / 0"


# What a tool did


FAILURES = {
    "slow": (ToolFailure("it was slow", reason="timeout"), "TimeoutError"),
    "denied": (ToolFailure("you may not", reason="denied"), "PermissionError"),
    "missing": (ToolFailure("there is no such thing", reason="not_found"), "FileNotFoundError"),
    "limited": (ToolFailure("too many", reason="rate_limited"), "RuntimeError"),
    "plain": (ToolFailure("it went wrong"), "RuntimeError"),
    "arguments": (BadArguments("n: expected a prime"), "ValueError"),
    "bug": (KeyError("key"), "RuntimeError"),
    "words of ours": (RuntimeError("account suspension: time limit exceeded"), "RuntimeError"),
}
# Each is also what it is a kind of.
BASES = {"PermissionError": "OSError", "FileNotFoundError": "OSError", "TimeoutError": "Exception"}


@pytest.fixture
def failing(scripts):
    def fail(how):
        raise FAILURES[how][0]

    scripts.tool("t.fail", fail, "how", how={"type": "string"})
    return scripts


@each("how", FAILURES)
def test_a_tools_failure_is_caught_by_its_type(failing, how):
    kind = FAILURES[how][1]
    code = "try:\n    t.fail(how={!r})\nexcept {} as error:\n    caught = str(error)\ncaught"
    assert str(FAILURES[how][0]) in failing.value(code.format(how, kind))
    assert str(FAILURES[how][0]) in failing.value(code.format(how, BASES.get(kind, "Exception")))


@each("how", FAILURES)
def test_a_failure_that_is_awaited_is_the_same(failing, how):
    code = f"""
import asyncio
async def safe(job):
    try:
        return await job
    except {FAILURES[how][1]} as error:
        return str(error)
await asyncio.gather(safe(t.fail(how={how!r})), safe(t.fail(how={how!r})))
"""
    first, second = failing.value(code)
    assert str(FAILURES[how][0]) in first
    assert first == second


@each("how", FAILURES)
def test_a_failure_that_is_not_caught_has_the_tools_own_words(failing, how):
    error = failing.error(f"x = 1\nt.fail(how={how!r})")
    assert str(FAILURES[how][0]) in error.message
    assert error.reason == getattr(FAILURES[how][0], "reason", None)
    assert error.hints[0].startswith("line 2: t.fail(")
    assert is_short(error)


def test_a_tools_hints_are_told(scripts):
    def fail():
        raise ToolFailure("no key", reason="source_unavailable", hints=["set BRAVE_KEY in the secrets"])

    scripts.tool("t.fail", fail)
    assert scripts.error("t.fail()").hints == ("line 1: t.fail()", "set BRAVE_KEY in the secrets")


def test_a_tool_that_takes_too_long(scripts):
    async def slow():
        await asyncio.sleep(5)

    scripts.register("t.slow", NO_ARGUMENTS, slow, timeout=0.05)
    assert scripts.value("try:\n    t.slow()\nexcept TimeoutError:\n    x = 'late'\nx") == "late"


def test_arguments_that_only_the_run_knows_are_a_value_error(scripts):
    scripts.tool("t.f", lambda n: n, "n", n={"type": "integer"})
    assert "a whole number" in scripts.value(
        "x = 'a'\ntry:\n    t.f(n=x)\nexcept ValueError as error:\n    y = str(error)\ny"
    )
    error = scripts.error("x = 'a'\nt.f(n=x)")
    assert error.hints == ("line 2: t.f(n=x)", "t.f(n: int)")


def test_a_tool_that_is_not_there_is_a_lookup_error(scripts):
    code = "name = 'no.tool'\ntry:\n    ot.call(name)\nexcept LookupError as error:\n    x = str(error)\nx"
    assert "no.tool" in scripts.value(code)


def test_a_tool_that_is_not_allowed_is_a_permission_error(scripts):
    scripts.tool("t.f", lambda: 1)
    code = "name = 't.f'\ntry:\n    ot.call(name)\nexcept PermissionError as error:\n    x = str(error)\nx"
    assert "t.f" in scripts.value(code, allowed=["t.g"])


def test_too_many_arguments_and_two_for_one_are_type_errors(scripts):
    scripts.tool("t.f", lambda n: n, n={})
    assert "at most" in scripts.value("xs = [1, 2]\ntry:\n    t.f(*xs)\nexcept TypeError as e:\n    y = str(e)\ny")
    assert "twice" in scripts.value("d = {'n': 1}\ntry:\n    t.f(1, **d)\nexcept TypeError as e:\n    y = str(e)\ny")


@pytest.mark.parametrize(
    "code",
    ["t.long()", f"x = {'a' * 500!r}\nx / 1", f"raise ValueError({'b' * 5000!r})", f"t.long() # {'c' * 500}"],
    ids=["tool", "line", "message", "both"],
)
def test_however_much_is_said_the_error_is_short(scripts, code):
    def long(n=0):
        raise ToolFailure("it failed", hints=["hint " * 100, "more " * 100])

    scripts.tool("t.long", long)
    assert is_short(scripts.error(code))


REPORT = """2 validation errors for Order
lines.0.count
  Input should be a valid integer [type=int_parsing, input_value='many', input_type=str]
    For further information visit https://errors.example/int_parsing
customer.email
  Field required [type=missing, input_value={'name': 'Ada'}, input_type=dict]
    For further information visit https://errors.example/missing"""


@pytest.mark.parametrize("kind", [ToolFailure, BadArguments, ValueError])
def test_a_tools_own_message_keeps_its_lines(scripts, kind):
    def fail():
        raise kind(REPORT)

    scripts.tool("t.fail", fail)
    error = scripts.error("t.fail()")
    assert REPORT in error.message
    assert error.hints[0] == "line 1: t.fail()"
    assert REPORT in scripts.value("try:\n    t.fail()\nexcept Exception as error:\n    text = str(error)\ntext")


TRACEBACK = "\n".join(
    ("Traceback (most recent call last):", *(f'  File "deep.py", line {n}, in step' for n in range(200)), "KeyError: 7")
)


@pytest.mark.parametrize("text", [TRACEBACK, "{" + "word " * 2000 + "}"], ids=["lines", "one line"])
def test_of_a_long_message_both_ends_are_shown_and_all_of_it_is_kept(scripts, text):
    def fail():
        raise ToolFailure(text, hints=["look at the log"])

    scripts.tool("t.fail", fail)
    error = scripts.error("t.fail()")
    assert len(error.message) <= 2000
    assert error.message.startswith(text[:600])
    assert error.message.endswith(text[-300:])
    assert error.hints == ("line 1: t.fail()", "look at the log")
    head, left_out, call, tail = re.fullmatch(
        r"(.*)\n… ([\d,]+) characters left out: (ot\.result\(.*\)) …\n(.*)", error.message, re.DOTALL
    ).groups()
    head = f"{head}\n" if "\n" in text else head
    assert text == f"{head}{text[len(head) : -len(tail)]}{tail}"
    assert len(text) == len(head) + int(left_out.replace(",", "")) + len(tail)
    page = scripts.value(call.replace("offset=", "limit=1, offset="))
    assert text[len(head) :].startswith(page["lines"][0]) or text.startswith(page["lines"][0][:1000])
    handle = call.partition('"')[2].partition('"')[0]
    assert scripts.value(f'ot.load("{handle}")') == text


def test_of_a_long_message_code_catches_both_ends(scripts):
    def fail():
        raise ToolFailure(TRACEBACK)

    scripts.tool("t.fail", fail)
    caught = scripts.value("try:\n    t.fail()\nexcept RuntimeError as error:\n    text = str(error)\ntext")
    assert len(caught) <= 2000
    assert caught.startswith("Traceback (most recent call last):\n  File")
    assert caught.endswith("in step\nKeyError: 7")
    assert "characters left out …" in caught
    assert list(scripts.app.runtime.results.kept(owner())) == []


def test_a_tool_that_called_a_tool_passes_on_all_of_its_message(scripts):
    def fail():
        raise ToolFailure(TRACEBACK)

    scripts.tool("t.fail", fail)
    scripts.tool("t.outer", lambda: call_tool("t.fail"))
    error = scripts.error("t.outer()")
    handle = error.message.partition('handle="')[2].partition('"')[0]
    assert scripts.value(f'ot.load("{handle}")') == TRACEBACK


def test_a_long_message_that_can_not_be_stored_is_shown_without_a_handle(scripts, monkeypatch):
    def fail():
        raise ToolFailure(TRACEBACK)

    def put(*_):
        raise NotStoredError("is not stored")

    scripts.tool("t.fail", fail)
    monkeypatch.setattr(ResultStore, "put", put)
    assert "characters left out …" in scripts.error("t.fail()").message


def test_a_secret_is_masked_in_a_long_message(scripts):
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}

    def fail(password):
        raise ToolFailure(f"{TRACEBACK[:1240]}{password}{TRACEBACK[1240:]}")  # a cut must not spare half of it

    scripts.register("t.fail", schema, fail)
    error = scripts.error("x = 'hunter2' * 5\nt.fail(password=x)")
    assert "hunter" not in error.message
    handle = error.message.partition('handle="')[2].partition('"')[0]
    assert "hunter" not in scripts.value(f'ot.load("{handle}")')


def test_what_was_printed_before_stays(small):
    result = small.run("print('before')\n1 / 0")
    assert (result.ok, result.printed) == (False, "before\n")


def test_an_error_inside_of_a_library_module_names_the_line_that_called_it(small):
    error = small.error("import statistics\n\nstatistics.mean([])")
    assert error.message == "ValueError: mean requires at least one data point"
    assert error.hints[0] == "line 3: statistics.mean([])"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("t.mail(from='a')", "write from_=…"),
        ("12306-mcp.get-date()", "write _12306_mcp.get_date(…)"),
        ("a.b.c()", "write a.b_c(…)"),
    ],
)
def test_what_python_can_not_say_is_shown_as_code_says_it(scripts, code, hint):
    scripts.tool("t.mail", lambda **given: given, **{"from": {"type": "string"}})
    scripts.tool("12306-mcp.get-date", lambda: 1)
    scripts.tool("a.b.c", lambda: 1)
    assert any(hint in one for one in scripts.error(code).hints), scripts.error(code)


@pytest.mark.parametrize(
    "code", ["async def main():\n    return 1\nmain()", "import asyncio\nasyncio.gather(t.f(), t.f())"]
)
def test_what_was_never_awaited_is_no_result(scripts, code):
    scripts.tool("t.f", lambda: 1)
    assert scripts.error(code).reason == "never_awaited"
