"""A shop: tools, and a model that stands in for a real one; and a terminal with somebody at it."""

import os
import pty
import re
import select
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
from ask.harness import Harness
from click.testing import CliRunner
from helpers import cli, start

from onetool.interfaces.cli import cli as root

PACK = '''
from asyncio import sleep
from onetool.sdk import tool

@tool(read_only=True)
def price(item: str) -> int:
    """What it costs."""
    return 3

def buy(item: str, card_token: str = "") -> str:
    """Buy it."""
    return f"bought {item}"

@tool(read_only=True)
async def weigh(item: str) -> int:
    """What it weighs."""
    await sleep(0.3)
    raise ValueError("the scales are broken")
'''
ALLOW = "--tool-allow=shop.price,shop.buy"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Shop:
    """Where `onetool ask` is run: its tools are those of a shop."""

    def __init__(self, harness):
        self.harness, self.folder, self.model = harness, harness.folder, harness.model
        self.env = {"ONETOOL_CONFIG": str(harness.config)}

    def ask(self, *args, stdin=""):
        """In this process, as `onetool ask` in a pipe would do it."""
        done = CliRunner(env=self.env).invoke(root, ["ask", ALLOW, *args], input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def ask_in_process(self, *args, stdin=""):
        """In one of its own, piped as a program would run it."""
        done = cli("ask", ALLOW, *args, cwd=self.folder, env=self.env, stdin=stdin)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    @contextmanager
    def terminal(self, *args, stdin=None, **env):
        """With `stdin`, that is piped in; somebody sits there all the same."""
        with Terminal(["ask", ALLOW, *args], self.folder, {**self.env, **env}, stdin) as terminal:
            yield terminal


class Terminal:
    """A process at a terminal of its own; `seen` is all that it has `shown`, without colours."""

    def __init__(self, args, folder, env, stdin=None):
        self.seen, self.shown = "", b""
        self._ours, theirs = pty.openpty()
        self.process = start(
            *args,
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color", **env},
            stdin=theirs if stdin is None else subprocess.PIPE,
            stdout=theirs,
            stderr=theirs,
            terminal=True,
        )
        os.close(theirs)
        if self.process.stdin is not None:
            with self.process.stdin as pipe:
                pipe.write(stdin)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._ours)

    def until(self, text):
        """Wait until this is shown, after what was waited for before; gives all that came until then."""
        start, end = len(self.seen), time.monotonic() + 60
        while text is None or text not in self.seen[start:]:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            if not self._read():
                assert text is None, f"{text!r} did not come: {self.seen!r}"
                break
        return self.seen[start:]

    def type(self, keys):
        os.write(self._ours, keys)

    def interrupt(self, text):
        """Type Ctrl-C at a prompt, until this is shown.

        Python's `input` does not notice one that comes after it has shown the prompt, and before it waits for keys: a
        person presses it again.
        """
        start, end = len(self.seen), time.monotonic() + 60
        while text not in self.seen[start:]:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            self.type(b"\x03")
            again = time.monotonic() + 5
            while text not in self.seen[start:] and time.monotonic() < again:
                assert self._read(), f"{text!r} did not come: {self.seen!r}"

    def ended(self):
        """The exit code."""
        self.until(None)
        return self.process.wait(10)

    def _read(self):
        if select.select([self._ours], [], [], 0.2)[0]:
            with suppress(OSError):  # it has ended
                if part := os.read(self._ours, 4096):
                    self.shown += part
                    self.seen = COLOURS.sub("", self.shown.decode(errors="replace")).replace("\r\n", "\n")
                    return True
            return False
        return True


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Harness(tmp_path, packs={"shop": PACK}) as harness:
        yield Shop(harness)
