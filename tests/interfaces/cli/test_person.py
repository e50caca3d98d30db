"""Tools that ask, from the command line: at a terminal they get an answer, in a pipe there is nobody."""

import os
import pty
import select
import time

import pytest
from helpers import cli, start, trusted

PACK = '''
from onetool.sdk import ask_model, ask_person, client_roots, log_message, tool

@tool(timeout=0.3)
async def remove(path: str) -> str:
    """Remove a file, if the person agrees."""
    log_message("looking")
    answer = await ask_person(
        f"Remove {path}?",
        {"sure": {"type": "boolean"}, "how": {"type": "string", "enum": ["gently", "fast"], "default": "gently"}},
    )
    return f"{path}: {answer['sure']}, {answer['how']}"

async def guess() -> str:
    """Ask a model."""
    return await ask_model("What is it?")

async def where() -> list:
    """Tell the folders."""
    return [root["name"] for root in await client_roots()]
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".onetool" / "packs").mkdir(parents=True)
    (tmp_path / ".onetool" / "packs" / "files.py").write_text(PACK)
    return trusted(tmp_path)


def at_a_terminal(folder, *args, types, before=b""):
    """What is seen at a terminal where somebody types these lines, each when the one before it was asked for."""
    fd, theirs = pty.openpty()
    os.write(fd, before)
    process = start(
        *args,
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, lines = "", list(types)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            seen += os.read(fd, 4096).decode()
        except OSError:  # it has ended
            break
        if lines and seen.endswith(": "):
            time.sleep(0.4)  # longer than the tool's deadline, if its clock ran
            text = lines.pop(0)
            os.write(fd, text)
            seen += " "
    os.close(fd)
    return process.wait(10), seen


@pytest.mark.parametrize(
    "command", [("tools", "invoke", "files.remove", "--args", '{"path": "x"}'), ("run", 'files.remove("x")')]
)
def test_a_tool_asks_the_person_and_the_time_does_not_count(folder, command):
    code, seen = at_a_terminal(folder, *command, types=[b"perhaps\n", b"y\n", b"\n"])
    assert code == 0
    assert "info: looking" in seen
    assert "Remove x?" in seen
    assert "sure: expected true or false, got the string 'perhaps'" in seen
    assert "(gently/fast) [gently]" in seen
    assert "x: True, gently" in seen


def test_what_was_typed_before_the_question_is_no_answer(folder):
    """Here it stands in the terminal before the program has begun."""
    code, seen = at_a_terminal(folder, "run", 'files.remove("x")', types=[b"\n"], before=b"y\n")
    assert code == 1
    assert "the person declined" in seen


@pytest.mark.parametrize(("typed", "word"), [(b"\n", "declined"), (b"\x04", "cancelled")])
def test_saying_nothing_is_a_no(folder, typed, word):
    code, seen = at_a_terminal(folder, "run", 'files.remove("x")', types=[typed])
    assert code == 1
    assert f"the person {word}" in seen


def test_there_is_no_model_at_a_terminal_but_a_folder(folder):
    code, seen = at_a_terminal(folder, "run", "files.guess()", types=[])
    assert code == 1
    assert (
        "files.guess needs to ask a model, which can't be done through this client: sampling is not supported" in seen
    )
    assert folder.name in at_a_terminal(folder, "run", "files.where()", types=[])[1]


def test_in_a_pipe_there_is_nobody_to_ask(folder):
    done = cli("run", 'files.remove("x")', cwd=folder)
    assert done.returncode == 1
    assert "files.remove needs to ask a person, which can't be done from here" in done.stderr
