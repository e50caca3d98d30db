"""`onetool run`: where the code comes from, where what goes."""

import json
import os
import pty
import signal
import subprocess
from contextlib import suppress

import pytest
from helpers import invoke, start, trusted, until

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
    done = invoke("run", "--yaml", "shop.price(name='tea')", cwd=folder)
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
    bare, asked = invoke("run", code, cwd=folder), invoke("run", "--json", code, cwd=folder)
    assert (bare.returncode, asked.returncode) == (0, 0)
    if as_json is None:
        assert json.loads(bare.stdout) == json.loads(asked.stdout) == piped
    else:
        assert (bare.stdout, asked.stdout) == (piped, as_json)


def test_on_a_terminal_it_is_yaml_unless_json_is_asked_for(folder):
    assert "{name: tea, cost: 4}" in terminal(["run", "shop.price('tea')"], folder)[0]
    assert '"name": "tea"' in terminal(["run", "--json", "shop.price('tea')"], folder)[0]


def test_json_and_yaml_exclude_each_other(folder):
    assert invoke("run", "--json", "--yaml", "1", cwd=folder).returncode == 2


@pytest.mark.parametrize("args", [("-",), ()])
def test_code_from_standard_input(folder, args):
    done = invoke("run", *args, cwd=folder, stdin="```python\n[1, 'é']\n```")
    assert (done.returncode, json.loads(done.stdout)) == (0, [1, "é"])


def test_code_from_a_file(folder):
    (folder / "code.py").write_text("x = 20\nx + 1\n")
    assert invoke("run", "--file", "code.py", cwd=folder).stdout == "21\n"
    missing = invoke("run", "-f", "nope.py", cwd=folder)
    assert missing.returncode == 2
    assert "can't read nope.py: No such file" in missing.stderr
    assert invoke("run", "-f", "code.py", "1", cwd=folder).returncode == 2
    (folder / "code.py").write_bytes(b"\xff\xfe1")
    assert "is not UTF-8 (byte 0)" in invoke("run", "-f", "code.py", cwd=folder).stderr


FAILING = "for word in ('tea', 'milk', 'nothing'):\n    shop.buy(name=word, password='open sesame')"
WRONG = "ValueError: nothing can't be bought"
LISTS = ["done: shop.buy ×2", "failed: shop.buy(name='nothing', password='***')"]


def test_an_error_says_what_was_done_and_what_failed(folder):
    done = invoke("run", FAILING, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.strip() for line in done.stderr.splitlines()][-2:] == LISTS
    assert done.stderr.count(WRONG) == 1
    whole = json.loads(invoke("run", "--envelope", FAILING, cwd=folder).stdout)
    assert [f"{word}: {told}" for word, told in whole["meta"]["made"].items()] == [LISTS[0], f"{LISTS[1]}: {WRONG}"]


def test_a_run_that_is_interrupted_or_late_says_what_is_not_known(folder):
    code = "shop.buy(name='tea')\nshop.wait()"
    running = start("run", code, cwd=folder, stderr=subprocess.PIPE, text=True)
    until((folder / "began").exists)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=30)
    assert "was cancelled; done: shop.buy ×1; not known: shop.wait ×1" in told
    (folder / ".onetool" / "onetool.yaml").write_text("run: {timeout_s: 3}")
    late = invoke("run", code, cwd=trusted(folder))
    assert [line.strip() for line in late.stderr.splitlines()][-2:] == ["done: shop.buy ×1", "not known: shop.wait()"]


def test_prints_go_to_standard_error_and_nothing_is_nothing(folder):
    done = invoke("run", "print('hello')\nprint('world', end='')", cwd=folder)
    assert (done.stdout, done.stderr) == ("", "hello\nworld")


def test_what_was_printed_is_not_part_of_the_result(folder):
    done = invoke("run", "print('hello')\n42", cwd=folder)
    assert (done.stdout, done.stderr) == ("42\n", "hello\n")


@pytest.mark.parametrize("how", [(), ("--json",), ("--yaml",)])
def test_an_error_is_told_on_standard_error(folder, how):
    done = invoke("run", *how, "shop.price(nmae='tea')", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 1: shop.price: nmae: unknown argument (did you mean name?)" in done.stderr
    assert "shop.price(name: str, count: int = 1)" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_envelope_is_the_whole_object_also_on_failure(folder):
    good = json.loads(invoke("run", "--envelope", "print(1)\n[shop.price('tea')]", cwd=folder).stdout)
    assert (good["ok"], good["data"], good["printed"]) == (True, [{"name": "tea", "cost": 4}], "1\n")
    assert good["meta"]["calls"] == 1
    bad = invoke("run", "--envelope", "1/0", cwd=folder)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["error"]["message"] == "ZeroDivisionError: division by zero"


def test_a_large_result_is_kept_and_another_process_reads_on(folder):
    done = invoke("run", "--yaml", "['line %d' % i for i in range(5000)]", cwd=folder)
    call = done.stdout.rpartition("Read on with: ")[2].splitlines()[0]
    assert call.startswith("ot.result(handle=")
    last = int(done.stdout.partition("\nRead on with: ")[0].rpartition("line ")[2])
    assert f'"- line {last + 1}"' in invoke("run", call, cwd=folder).stdout
    whole = invoke("run", "--yaml", "--full", "['line %d' % i for i in range(5000)]", cwd=folder)
    assert whole.stdout.count("\n") == 5000
    assert len(json.loads(invoke("run", "['line %d' % i for i in range(5000)]", cwd=folder).stdout)) == 5000


def test_an_allow_list(folder):
    done = invoke("run", "--tool-allow", "time.now", "shop.price('tea')", cwd=folder)
    assert done.returncode == 1
    assert "shop.price is not allowed here" in done.stderr


def test_without_code_on_a_terminal_it_says_what_to_do(folder):
    shown, status = terminal(["run"], folder)
    assert "Give the code: onetool run 'time.now()'" in shown
    assert status == 2


def terminal(args, cwd):
    """Run a command at a real terminal. Return what it showed, and its exit code."""
    leader, follower = pty.openpty()
    process = start(*args, cwd=cwd, stdin=follower, stdout=follower, stderr=follower, terminal=True)
    os.close(follower)
    shown = b""
    with suppress(OSError):  # raised when the last writer has closed its side
        while piece := os.read(leader, 65536):
            shown += piece
    os.close(leader)
    return shown.decode(), process.wait(timeout=10)


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
    done = invoke(*args, cwd=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr + done.stdout
    assert len(done.stderr + done.stdout) < 3000
