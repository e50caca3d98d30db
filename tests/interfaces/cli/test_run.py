"""`onetool run`: where the code comes from, where what goes, and the interactive session on a real terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from helpers import cli, start, trusted, until

PACK = '''
def price(name: str, count: int = 1) -> dict:
    """A price."""
    return {"name": name, "cost": 4 * count}

def buy(name: str, password: str = "") -> str:
    """Buy something."""
    if name == "nothing":
        raise ValueError("nothing can't be bought")
    return name

async def wait() -> None:
    """Wait."""
    from asyncio import Event
    from pathlib import Path

    Path("began").touch()
    await Event().wait()
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".onetool" / "packs").mkdir(parents=True)
    (tmp_path / ".onetool" / "packs" / "shop.py").write_text(PACK)
    (tmp_path / ".onetool" / "onetool.yaml").write_text("{}")
    return trusted(tmp_path)


def test_code_from_an_argument(folder):
    done = cli("run", "--yaml", "shop.price(name='tea')", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{name: tea, cost: 4}\n", "")


@pytest.mark.parametrize(
    ("code", "piped", "as_json"),
    [
        ("shop.price(name='tea')", {"name": "tea", "cost": 4}, None),
        ("[1, 'é', None, 2.5, True]", [1, "é", None, 2.5, True], None),
        ("'one\\ntwo: three'", "one\ntwo: three\n", '"one\\ntwo: three"\n'),
        ("'42'", "42\n", '"42"\n'),
        ("''", "\n", '""\n'),
        ("None", "", "null\n"),
        ("42", "42\n", "42\n"),
        ("True", "true\n", "true\n"),
    ],
)
def test_in_a_pipe_it_is_json_and_a_text_alone_is_bare(folder, code, piped, as_json):
    bare, asked = cli("run", code, cwd=folder), cli("run", "--json", code, cwd=folder)
    assert (bare.returncode, asked.returncode) == (0, 0)
    if as_json is None:
        assert json.loads(bare.stdout) == json.loads(asked.stdout) == piped
    else:
        assert (bare.stdout, asked.stdout) == (piped, as_json)


def test_on_a_terminal_it_is_yaml_unless_json_is_asked_for(folder):
    assert "{name: tea, cost: 4}" in terminal(["run", "shop.price('tea')"], folder, [])[0]
    assert '"name": "tea"' in terminal(["run", "--json", "shop.price('tea')"], folder, [])[0]


def test_json_and_yaml_exclude_each_other(folder):
    assert cli("run", "--json", "--yaml", "1", cwd=folder).returncode == 2


@pytest.mark.parametrize("args", [("-",), ()])
def test_code_from_standard_input(folder, args):
    done = cli("run", *args, cwd=folder, stdin="```python\n[1, 'é']\n```")
    assert (done.returncode, json.loads(done.stdout)) == (0, [1, "é"])


def test_code_from_a_file(folder):
    (folder / "code.py").write_text("x = 20\nx + 1\n")
    assert cli("run", "--file", "code.py", cwd=folder).stdout == "21\n"
    missing = cli("run", "-f", "nope.py", cwd=folder)
    assert missing.returncode == 2
    assert "can't read nope.py: No such file" in missing.stderr
    assert cli("run", "-f", "code.py", "1", cwd=folder).returncode == 2
    (folder / "code.py").write_bytes(b"\xff\xfe1")
    assert "is not UTF-8 (byte 0)" in cli("run", "-f", "code.py", cwd=folder).stderr


FAILING = "for word in ('tea', 'milk', 'nothing'):\n    shop.buy(name=word, password='open sesame')"
WRONG = "ValueError: nothing can't be bought"
LISTS = ["done: shop.buy ×2", "failed: shop.buy(name='nothing', password='***')"]


def test_an_error_says_what_was_done_and_what_failed(folder):
    done = cli("run", FAILING, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.strip() for line in done.stderr.splitlines()][-2:] == LISTS
    assert done.stderr.count(WRONG) == 1
    whole = json.loads(cli("run", "--envelope", FAILING, cwd=folder).stdout)
    assert [f"{word}: {told}" for word, told in whole["meta"]["made"].items()] == [LISTS[0], f"{LISTS[1]}: {WRONG}"]
    text, _ = terminal(["run", "-i"], folder, ["shop.buy('tea'); shop.buy('nothing')\n", "\x04"])
    assert "done: shop.buy ×1" in text


def test_a_run_that_is_interrupted_or_late_says_what_is_not_known(folder):
    code = "shop.buy(name='tea')\nshop.wait()"
    running = start("run", code, cwd=folder, stderr=subprocess.PIPE, text=True)
    until((folder / "began").exists)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=30)
    assert "was cancelled; done: shop.buy ×1; not known: shop.wait ×1" in told
    (folder / ".onetool" / "onetool.yaml").write_text("run: {timeout_s: 3}")
    late = cli("run", code, cwd=trusted(folder))
    assert [line.strip() for line in late.stderr.splitlines()][-2:] == ["done: shop.buy ×1", "not known: shop.wait()"]


def test_prints_go_to_standard_error_and_nothing_is_nothing(folder):
    done = cli("run", "print('hello')\nprint('world', end='')", cwd=folder)
    assert (done.stdout, done.stderr) == ("", "hello\nworld")


def test_what_was_printed_is_not_part_of_the_result(folder):
    done = cli("run", "print('hello')\n42", cwd=folder)
    assert (done.stdout, done.stderr) == ("42\n", "hello\n")


@pytest.mark.parametrize("how", [(), ("--json",), ("--yaml",)])
def test_an_error_is_told_on_standard_error(folder, how):
    done = cli("run", *how, "shop.price(nmae='tea')", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 1: shop.price: nmae: unknown argument (did you mean name?)" in done.stderr
    assert "shop.price(name: str, count: int = 1)" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_envelope_is_the_whole_object_also_on_failure(folder):
    good = json.loads(cli("run", "--envelope", "print(1)\n[shop.price('tea')]", cwd=folder).stdout)
    assert (good["ok"], good["data"], good["printed"]) == (True, [{"name": "tea", "cost": 4}], "1\n")
    assert good["meta"]["calls"] == 1
    bad = cli("run", "--envelope", "1/0", cwd=folder)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["error"]["message"] == "ZeroDivisionError: division by zero"


def test_a_large_result_is_kept_and_another_process_reads_on(folder):
    done = cli("run", "--yaml", "['line %d' % i for i in range(5000)]", cwd=folder)
    call = done.stdout.rpartition("Read on with: ")[2].splitlines()[0]
    assert call.startswith("ot.result(handle=")
    last = int(done.stdout.partition("\nRead on with: ")[0].rpartition("line ")[2])
    assert f'"- line {last + 1}"' in cli("run", call, cwd=folder).stdout
    whole = cli("run", "--yaml", "--full", "['line %d' % i for i in range(5000)]", cwd=folder)
    assert whole.stdout.count("\n") == 5000
    assert len(json.loads(cli("run", "['line %d' % i for i in range(5000)]", cwd=folder).stdout)) == 5000


def test_an_allow_list(folder):
    done = cli("run", "--tool-allow", "time.now", "shop.price('tea')", cwd=folder)
    assert done.returncode == 1
    assert "shop.price is not allowed here" in done.stderr


def test_an_interactive_session_takes_no_code(folder):
    assert cli("run", "-i", "1", cwd=folder).returncode == 2


def test_without_code_on_a_terminal_it_says_what_to_do(folder):
    shown, status = terminal(["run"], folder, [])
    assert "Give the code: onetool run 'time.now()'" in shown
    assert status == 2


class Shown(str):
    """A text that the terminal shows before the next line is typed."""


def terminal(args, cwd, lines):
    """Type lines at a real terminal, each when a prompt has come; what was shown, and the exit code.

    A `Shown` among them is a text to wait for, instead of a prompt, before the next one.
    """
    leader, follower = pty.openpty()
    process = start(
        *args,
        cwd=cwd,
        env={**os.environ, "TERM": "dumb"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        terminal=True,
    )
    os.close(follower)
    shown, waiting, deadline, prompts, typed, seen = "", list(lines), time.monotonic() + 40, 0, "", "-"
    while time.monotonic() < deadline:
        if not select.select([leader], [], [], 0.2)[0]:
            if typed == "\x03" and shown.endswith(seen):  # readline may notice a signal only with the next key
                os.write(leader, typed.encode())
            continue
        try:
            shown += os.read(leader, 65536).decode()
        except OSError:
            break
        now = shown.count(">>> ") + shown.count("... ")
        if waiting and not isinstance(waiting[0], Shown) and now > prompts:
            prompts, typed = now, waiting.pop(0)
            os.write(leader, typed.encode())
        if len(waiting) > 1 and isinstance(waiting[0], Shown) and waiting[0] in shown:
            seen, typed = waiting.pop(0), waiting.pop(0)
            os.write(leader, typed.encode())
    os.close(leader)
    return shown, process.wait(timeout=10)


def test_an_interactive_session(folder):
    shown, status = terminal(
        ["run", "-i"],
        folder,
        [
            "x = 20\n",
            "x + 1\n",
            "def f(n):\n",
            "    return n * 2\n",
            "\n",
            "f(x)\n",
            "shop.pri\tname='tea')\n",
            "\x04",
        ],
    )
    assert status == 0
    assert "\r\n21\r\n" in shown
    assert "\r\n40\r\n" in shown
    assert "{name: tea, cost: 4}" in shown


def test_the_history_is_kept(folder):
    terminal(["run", "-i"], folder, ["40 + 2\n", "\x04"])
    history = folder / ".onetool" / "run_history"
    assert "40 + 2" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_what_runs_and_the_session_goes_on(folder):
    code = ["def f():\n", "print('be' 'gun')\n", "while True: pass\n", "\n", "f()\n"]
    shown, status = terminal(["run", "-i"], folder, [*code, Shown("begun"), "\x03", "1 + 1\n", "\x04"])
    assert "Stopped." in shown
    assert "\r\n2\r\n" in shown
    assert status == 0


SLOW = """
import asyncio
import sys
import time

def blocks() -> str:
    'Takes long.'
    print("begun", file=sys.stderr, flush=True)
    time.sleep(20)

async def waits() -> str:
    'Takes long, too.'
    print("begun", file=sys.stderr, flush=True)
    await asyncio.sleep(20)
"""


@pytest.mark.parametrize(
    "code", ["slow.blocks()", "slow.waits()", "import time; print('be' 'gun'); time.sleep(20)", "[await slow.waits()]"]
)
def test_ctrl_c_while_the_code_waits_keeps_what_was_defined(folder, code):
    (folder / ".onetool" / "packs" / "slow.py").write_text(SLOW)
    lines = ["x = 41\n", f"{code}\n", Shown("begun"), "\x03", "x + 1\n", "\x04"]
    shown, status = terminal(["run", "-i"], folder, lines)
    assert "Stopped." in shown
    assert "Traceback" not in shown
    assert "gone" not in shown
    assert "\r\n42\r\n" in shown
    assert status == 0


def test_code_that_catches_everything_is_stopped_all_the_same(folder):
    code = ["x = 1\n", "import time\n", "while True:\n", "print('be' 'gun')\n"]
    code += ["try: time.sleep(20)\n", "except BaseException: pass\n", "\n"]
    shown, status = terminal(["run", "-i"], folder, [*code, Shown("begun"), "\x03", "1 + 1\n", "\x04"])
    assert "All variables are gone" in shown
    assert "\r\n2\r\n" in shown
    assert status == 0


@pytest.mark.parametrize("word", ["exit", "quit()", "quit", "exit()"])
def test_a_word_leaves_the_session(folder, word):
    shown, status = terminal(["run", "-i"], folder, ["40 + 2\n", f"{word}\n"])
    assert "\r\n42\r\n" in shown
    assert "Error" not in shown
    assert status == 0
    piped = cli("run", "-i", cwd=folder, stdin=f"1\n{word}\n2\n")
    assert (piped.returncode, piped.stdout) == (0, "1\n")


def test_a_name_of_ones_own_leaves_nothing(folder):
    assert cli("run", "-i", cwd=folder, stdin="quit = 5\nquit\n2\n").stdout == "5\n2\n"


def test_blocks_are_indented(folder):
    lines = ["def f(n):\n", "if n:\n", "return 'yes'\n", "return 'no'\n", "\n", "[f(0), f(1)]\n", "\x04"]
    shown, status = terminal(["run", "-i"], folder, lines)
    assert "[no, yes]" in shown.replace("'", "").replace('"', "")
    assert status == 0


def test_what_brings_its_own_indentation_keeps_it(folder):
    lines = ["def f(n):\n", "    if n:\n", "        return 'a'\n", "    return 'b'\n", "\n", "f(0) + f(1)\n", "\x04"]
    shown, _ = terminal(["run", "-i"], folder, lines)
    assert "\r\nba\r\n" in shown


def test_ctrl_c_at_the_prompt_takes_back_the_line_and_nothing_else(folder):
    shown, status = terminal(["run", "-i"], folder, ["x = 40\n", "abc", Shown("abc"), "\x03", "x + 2\n", "\x04"])
    assert "\r\n42\r\n" in shown
    assert status == 0


def test_lines_can_be_piped_into_a_session(folder):
    done = cli("run", "-i", cwd=folder, stdin="x = 2\nfor i in range(2):\n    x += i\n\nx\n1/0\n")
    assert done.stdout == "3\n"
    assert "ZeroDivisionError" in done.stderr
    assert done.returncode == 0


@pytest.mark.attack("other callers")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("tools", "invoke", "time.now", f"{'k' * 60_000}=1"), "kkk"),
        (("tools", "invoke", "k" * 60_000), "kkk"),
        (("run", "time.now(**{'k' * 1_000_000: 1})"), "its name has more than 256 characters"),
        (("run", "ot.call('k' * 1_000_000)"), "Tool not found: kkk"),
    ],
)
def test_long_names_are_refused_with_few_words(tmp_path, args, words):
    done = cli(*args, cwd=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr + done.stdout
    assert len(done.stderr + done.stdout) < 3000
