"""Code that wants out: every case of the corpus, in our process and through the command, and what we thought of since.

The oracle: a secret in our environment that no answer may contain, a file that no code may create, an answer, and
a next run as if nothing had been.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import calls, start

from onetool import App

pytestmark = pytest.mark.attack("sandbox")

SECRET = "CANARY-5a1e7b"
CONFIG = "stats: {enabled: false}\nrun: {timeout_s: 2, memory_mb: 64}\n"
CASES = json.loads((Path(__file__).parents[1] / "data" / "security" / "sandbox.json").read_text())

PACK = """
from typing import Any

def kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:200]
"""


def code_of(case, flag):
    made = eval(case["gen"]) if "gen" in case else case["code"]
    return made.replace("@FLAG@", str(flag))


def name_of(case):
    return case["id"]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    (folder / "probe.py").write_text(PACK)
    (folder / "onetool.yaml").write_text(f"packs: [probe.py]\n{CONFIG}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", SECRET)
        with App.open(folder / "onetool.yaml") as app:
            app.run_sync("1")  # starts the sandbox
            yield app


def harmless(app, code):
    """Run it; whatever it wanted, it got none of it, and the next run does not notice."""
    result = app.run_sync(code)
    assert SECRET not in repr(result)
    assert app.run_sync("1 + 1").data == 2
    return result


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_case_of_the_corpus_gets_nothing(app, tmp_path, case):
    flag = tmp_path / "flag"
    result = harmless(app, code_of(case, flag))
    assert not flag.exists()
    assert "root:" not in repr(result)


# The same through the command, each in a process of its own and several at a time.

PER_BATCH = 16
BATCHES = [CASES[start : start + PER_BATCH] for start in range(0, len(CASES), PER_BATCH)]


def through_the_command(folder, case):
    """What is wrong with how it went; None when nothing is."""
    flag = folder / f"flag-{case['id']}"
    env, pipe = {**os.environ, "SECRET": SECRET}, subprocess.PIPE
    command = ("--config", str(folder / "onetool.yaml"), "run", "-")
    with start(*command, env=env, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe) as done:
        try:
            code = code_of(case, flag).encode(errors="surrogatepass")
            said = b"".join(done.communicate(code, timeout=60)).decode(errors="replace")
        finally:
            done.kill()
    if done.returncode not in (0, 1, 2) or "Internal error" in said or "Traceback" in said:
        return f"ended with {done.returncode}: {said[-300:]}"
    if SECRET in said or "root:" in said or flag.exists():
        return f"got out: {said[-300:]}"
    return None


@pytest.mark.long
@pytest.mark.parametrize("cases", BATCHES, ids=lambda cases: f"{cases[0]['id']}-{cases[-1]['id']}")
def test_the_command_gives_nothing_away_either(tmp_path, cases):
    (tmp_path / "onetool.yaml").write_text(CONFIG)
    with ThreadPoolExecutor(4) as pool:
        outcomes = pool.map(lambda case: through_the_command(tmp_path, case), cases)
        assert {case["id"]: wrong for case, wrong in zip(cases, outcomes, strict=True) if wrong} == {}


# Beyond the corpus: packs and tools are objects that come from outside.


@pytest.mark.parametrize(
    "expression",
    [
        "tools.echo.__globals__",
        "tools.echo.__self__",
        "tools.echo.__code__",
        "tools.echo.__closure__",
        "tools.__dict__",
        "tools.__init__.__globals__",
        "tools.__module__",
        "tools.__reduce__()",
        "type(tools).__subclasses__()",
        "type(tools).__mro__",
        "type(tools)()",
        "type(type(tools))('x', (), {})",
        "type(tools.echo)(compile('1', 'f', 'eval'), {})",
        "getattr(tools, '__cl' + 'ass__').__bases__",
        "'{0.__class__.__init__.__globals__}'.format(tools)",
        "'%(x)s' % {'x': tools.echo.__globals__}",
        "eval('tools.echo.__globals__')",
        "tools.echo.__call__.__self__",
        "tools._onetool",
        "ot.call.__globals__",
        "ot.call('os.system', {'command': 'id'})",
        "ot.call('__import__', {'name': 'os'})",
        "ot.call('ot.call', {'name': 'ot.call'})",
    ],
)
def test_packs_and_tools_lead_nowhere(app, expression):
    result = harmless(app, expression)
    assert not result.ok


def test_what_a_pack_is_changes_for_nobody_else(app):
    harmless(app, "tools.echo = 5\nsetattr(tools, 'more', 6)\ntools = 7")
    harmless(app, "import statistics\nstatistics.mean = lambda values: 'wrong'\n__onetool_statistics = 5")
    harmless(app, "len = print = str = None\nimport json\njson.loads = None")
    assert harmless(app, "tools.echo(message='same')").data == "same"
    after = harmless(app, "import statistics, json\n[statistics.mean([1, 3]), json.loads('3'), len('abcd')]")
    assert after.data == [2, 3, 4]
    assert harmless(app, "tools.more").error is not None


def test_an_object_of_ours_is_only_a_name_outside(app):
    told = [harmless(app, code).data for code in ("tools", "tools.echo", "type(tools)", "probe.kind(tools)")]
    assert not [text for text in told if " at 0x" in text]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("class A: pass\na = A()\na.x = [1]\na.me = a", "dict {'x': [1], 'me': '...'}"),
        ("a = []\na.append(a)", "list ['[...]']"),
        ("a = {}\na['a'] = a", "dict {'a': '{...}'}"),
        (
            "a = {float('nan'): 1, (1, (2, 3)): 2, None: 3, b'x': 4}",
            "dict {'nan': 1, '[1, [2, 3]]': 2, 'null': 3, 'eA==': 4}",
        ),
        ("a = lambda: 1", "str"),
        ("a = tools.echo", "str"),
        ("a = int", "str"),
        ("a = (x for x in [1, 2])", "list [1, 2]"),
        ("a = '\\ud800'", "str"),
        ("a = {1, 2}", "list [1, 2]"),
        ("a = ValueError('x')", "str 'ValueError: x'"),
        ("import json\na = json", "str"),
    ],
)
def test_whatever_is_sent_to_a_tool_is_plain_data(app, value, seen):
    assert harmless(app, f"{value}\nprobe.kind(a)").data.startswith(seen)
    harmless(app, f"{value}\na")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("ｔｏｏｌｓ.ｅcho(message='a')", "a"),
        ("eval('tools.echo(message=\"a\")')", "a"),
        ("exec('x = tools.echo(message=\"a\")')\nx", "a"),
        ("getattr(tools, 'ec' + 'ho')(message='a')", "a"),
        ("f = tools.echo\n(lambda: f(message='a'))()", "a"),
    ],
)
def test_a_tool_by_another_way_is_still_a_call(app, code, value):
    """As good as any other: what makes it safe is done when the call is made."""
    result = harmless(app, code)
    assert (result.data, result.meta["calls"]) == (value, 1)
    denied = app.run_sync(code, allowed=["time.now"])
    assert denied.error is not None


def test_a_letter_that_only_looks_the_same_is_another_one(app):
    assert "there is no pack" in harmless(app, "tооls.echo(message='a')").error.message


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('x' * 30_000_000)",
        'raise AttributeError("\'a" * 10_000_000)',
        "raise NameError(\"name '\" + 'a' * 10_000_000 + \"' is not defined\")",
        "raise ModuleNotFoundError(\"No module named '\" + 'a.' * 10_000_000)",
        "raise SystemExit(3)",
        "raise BaseException('x')",
        "raise StopIteration(1)",
        "raise MemoryError('x')",
        "raise TimeoutError('time limit exceeded')",
        "raise KeyboardInterrupt('x')",
    ],
)
def test_whatever_is_raised_is_an_error_of_a_few_lines(app, code):
    error = harmless(app, code).error
    assert len(error.message) + sum(map(len, error.hints)) < 1000


# What this process itself does with code: it parses it, and looks at it, before anything is fed.


@pytest.mark.long
@pytest.mark.parametrize(
    ("begin", "again", "end"),
    [
        ("", "(", ""),
        ("", "[", ""),
        ("", "{1:", ""),
        ("", "([{", ""),
        ("", "lambda: ", "1"),
        ("", "1 if 1 else ", "1"),
        ("x", ".a", ""),
        ("x", "()", ""),
        ("x", "[0]", ""),
        ("", "not ", "1"),
        ("", "-", "1"),
        ("", "~", "1"),  # also a fence
        ("", "`", ""),
        ("", "~~~\n", ""),
        ("words\n", "```\nx\n", ""),
        ("", "```\n", ""),
        ("", "~" * 50 + " ", ""),
        ("", " " * 1000 + "x\n", ""),
        ("1", "+1", ""),
        ("1", "**1", ""),
        ("1", "<1", ""),
        ("1", " or 1", ""),
        ("", "@a\n", "def f(): pass"),
        ("f'", "{1}", "'"),
        ("f'", "{1:", "'"),
        ("  x = f'''", "{1}\n", "'''"),
        ("", "f'{1}'", ""),
        ("", "x = ", "1"),
        ("", "x;", "x"),
        ("if 1: pass\n", "elif 1: pass\n", ""),
        ("match x:\n case 1", "|1", ": pass"),
        ("f(", "*x,", ")"),
        ("[x ", "for x in y ", "]"),
        ("import ", "a,", "a"),
        ("", "import statistics\n", ""),
        ("", "from statistics import *\n", ""),
        ("", "from fs import *\n", ""),
        ("import time\n", "time.now()\n", ""),
        ("", "f(1)\n", ""),
        ("", "tools.ehco(mesage=1)\n", ""),
        ("", "x = f()\nawait x\n", ""),
        ("while 1:\n", " x = f()\n await x\n", ""),
        ("def f(a): pass\n", "await f(a)\n", ""),
        ("import asyncio\n", "await asyncio.gather(*[f(x) for x in y])\n", ""),
        ("await (x", " if 1 else y", ")"),
        ("a = b\nb = a\n", "for x, y in a: await y\n", ""),
    ],
)
def test_no_text_keeps_our_parser_busy(tmp_path, begin, again, end):
    # Half the square of 3000 is more calls than are allowed. Short pieces come also so often that they are refused.
    (tmp_path / "onetool.yaml").write_text(CONFIG)
    with calls(3_000_000), App.open(tmp_path / "onetool.yaml") as app:  # its threads begin here, and are counted
        for times in (3000, 30_000) if len(again) < 5 else (3000,):
            app.run_sync(f"{begin}{again * times}{end}")


@pytest.mark.long
def test_the_parser_of_this_python_survives_every_depth(tmp_path):
    """In a process of its own: what overflows there is the stack of C."""
    script = (
        "from onetool.script.parse import read\nfrom onetool.script.parse import CodeScan as Scan\n"
        "for again in ('(', '[', '{1:', 'lambda:', '1 if 1 else ', 'x.', 'x(', 'x[', 'not ', '-', '1+', '1**', '1<', "
        "'@a\\n', 'f\"{', 'await ', '*', '(x:=', 'x=', 'if 1:', 'yield ', 'x,', 'case ', 'f(x for x in '):\n"
        "    for times in (99, 201, 900, 3000, 10_000):\n"
        "        for end in ('1', '', '1' + ')' * times, '1' + ']' * times):\n"
        "            Scan(read(again * times + end)).futures\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-500:]


# Numbers that all have the hash 0, and a tuple that is small and has 2^40 leaves to be hashed: harmless in the sandbox,
# without end for a Python that makes a dict of them.
ENDLESS_KEYS = {
    "a result with a key of many parts": "x = ()\nfor _ in range(40): x = (x, x)\n{x: 1}",
    "an argument with a key of many parts": "x = ()\nfor _ in range(40): x = (x, x)\ntools.echo(message={x: 1})",
    "a set of equal hashes": "{i * (2**61 - 1) for i in range(60_000)}",
    "a dict of equal hashes": "{i * (2**61 - 1): 0 for i in range(60_000)}",
}


FOR_EVER_S = 20  # such a dict takes Python a minute, and a run on a full machine some seconds


@pytest.mark.long
@pytest.mark.parametrize("code", ENDLESS_KEYS.values(), ids=ENDLESS_KEYS)
def test_keys_that_take_for_ever_to_hash_do_not_hold_us_up(tmp_path, code):
    """In a process of its own, which can be killed."""
    (tmp_path / "onetool.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "onetool", "--config", str(tmp_path / "onetool.yaml"), "run", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.communicate(code.encode(), timeout=FOR_EVER_S)
    finally:
        process.kill()
        process.wait()
