"""`onetool packs new` and `check`: from nothing to a working pack, and what is wrong with one."""

import json
import subprocess
import sys

import pytest
from helpers import invoke


@pytest.mark.long
def test_a_new_pack_works_at_once(tmp_path):
    done = invoke("packs", "new", "weather", cwd=tmp_path)
    assert done.returncode == 0
    folder = tmp_path / ".onetool" / "packs"
    called = invoke("tools", "invoke", "weather.greet", "--args", '{"name": "Ann"}', cwd=tmp_path)
    assert json.loads(called.stdout)["result"]["data"] == "Hello, Ann."
    checked = invoke("packs", "check", str(folder / "weather.py"), cwd=tmp_path)
    assert (checked.returncode, json.loads(checked.stdout)) == (0, [])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "test_weather.py")]
    tested = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout


def test_a_new_pack_does_not_hide_a_tool_of_its_name(tmp_path):
    assert invoke("init", cwd=tmp_path).returncode == 0  # its config declares a tool `weather`
    assert invoke("packs", "new", "weather", cwd=tmp_path).returncode == 0
    code = 'one = weather\n[weather()["sky"], one()["sky"], weather.greet("Ann")]'
    done = invoke("run", code, cwd=tmp_path)
    assert json.loads(done.stdout) == ["clear", "clear", "Hello, Ann."], done.stderr
    assert "weather" in invoke("run", "weather(x=1)", cwd=tmp_path).stderr


def test_packs_without_a_config_are_used_beside_the_own_config(tmp_path, own_home):
    (own_home / ".onetool").mkdir()
    (own_home / ".onetool" / "onetool.yaml").write_text("aliases: {clock: time.now}\n")
    assert invoke("packs", "new", "rain", cwd=tmp_path).returncode == 0
    done = invoke("run", '[clock()["iso"][:2], rain.greet("Ann")]', cwd=tmp_path)
    assert json.loads(done.stdout) == ["20", "Hello, Ann."], done.stderr
    (tmp_path / "sub").mkdir()
    assert invoke("run", 'rain.greet("Ann")', cwd=tmp_path / "sub").stdout.strip() == "Hello, Ann."
    assert invoke("trust", "--revoke", cwd=tmp_path).returncode == 0
    done = invoke("run", 'rain.greet("Ann")', cwd=tmp_path)
    assert done.returncode == 1
    assert "run onetool trust" in done.stderr


def test_nothing_is_overwritten(tmp_path):
    invoke("packs", "new", "weather", "--folder", "mine", cwd=tmp_path)
    (tmp_path / "mine" / "weather.py").write_text("precious")
    done = invoke("packs", "new", "weather", "--folder", "mine", cwd=tmp_path)
    assert (done.returncode, "already exists" in done.stderr) == (1, True)
    assert (tmp_path / "mine" / "weather.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["two words", "1st", "_private", "a.b", "../x", ""])
def test_a_name_that_is_none(tmp_path, name):
    assert invoke("packs", "new", name, cwd=tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []


POOR = '''
import socket
import threading

def silent(x):
    pass

def sketchy(a: int, b: str) -> threading.Lock:
    """Do something.

    Args:
        a: Described.
    """

def impossible(s: socket.socket):
    """Never."""
'''


def test_check_lists_what_is_wrong(tmp_path):
    (tmp_path / "poor.py").write_text(POOR)
    done = invoke("packs", "check", "poor.py", cwd=tmp_path)
    assert done.returncode == 1
    found = [(told["line"], told["key"], told["severity"]) for told in json.loads(done.stdout)]
    messages = " | ".join(told["message"] for told in json.loads(done.stdout))
    assert (15, "poor.impossible", "error") in found
    assert (5, "poor.silent", "warning") in found
    for part in ("no docstring", "x has no type hint", "b is not described", "can't be represented in JSON"):
        assert part in messages, messages


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nonexistent_library\n", "nonexistent_library"),
        ("x = 1\n", "no tools"),
        ("pack = 'time'\ndef f():\n    'F.'\n", "taken by"),
        ("raise SystemExit\n", "SystemExit"),
    ],
)
def test_check_says_what_would_fail(tmp_path, text, told):
    (tmp_path / "bad.py").write_text(text)
    done = invoke("packs", "check", "bad.py", cwd=tmp_path)
    assert done.returncode == 1
    assert told in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def odd(n: 'Nonsense'): 'Odd.'\n",
            "bad.py:1: bad.odd: parameter 'n': Nonsense is not defined: import or define",
        ),
        (
            "from onetool.sdk import tool\n@tool(read_onyl=True)\ndef odd(n): 'Odd.'\n",
            "bad.py:2: packs: TypeError: @tool has no option read_onyl; did you mean read_only?",
        ),
        ("x = 1\ndef odd(:\n", "bad.py:2: packs: SyntaxError: invalid syntax"),
        ("x = 1\ny = x / 0\n", "bad.py:2: packs: ZeroDivisionError: division by zero"),
    ],
)
def test_code_that_calls_a_broken_tool_or_pack_is_told_where_it_is_broken(tmp_path, text, said):
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "onetool.yaml").write_text("packs: [bad.py]\n")
    done = invoke("run", "bad.odd(n=1)", "--config", "onetool.yaml", cwd=tmp_path)
    assert (done.returncode, said in done.stderr.partition("Error: line 1: ")[2]) == (1, True), done.stderr
    checked = invoke("packs", "check", "bad.py", cwd=tmp_path)  # a relative path has the line, too
    assert json.loads(checked.stdout)[0]["line"] == int(said.split(":")[1])


def test_check_reports_the_pack_alone(tmp_path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(f"raise ValueError('broken {name}')\n")
    (tmp_path / "onetool.yaml").write_text("packs: ['.']\n")
    done = invoke("--config", "onetool.yaml", "packs", "check", "one.py", cwd=tmp_path)
    assert done.returncode == 1
    assert ("broken one" in done.stdout + done.stderr, "broken other" in done.stdout + done.stderr) == (True, False)


def test_an_empty_folder_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    done = invoke("packs", "check", "empty", cwd=tmp_path)
    assert (done.returncode, "no pack found" in done.stdout) == (1, True)
