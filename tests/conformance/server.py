"""A server with the fixture's tools: `onetool serve` in a process of its own, on a copy of the fixture."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

FIXTURE = Path(__file__).parent / "fixture"
ONETOOL = Path(sys.executable).with_name("onetool")
STARTS_WITHIN = 30
ENDS_WITHIN = 10


def copy_fixture(folder: Path) -> Path:
    """The config of a fresh copy: two of the fixture's tools change the folder that they lie in."""
    copy = folder / "fixture"
    shutil.copytree(FIXTURE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy / "onetool.yaml"


class Server:
    """`url` is where it answers, once it has told so."""

    def __init__(self, config: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [str(ONETOOL), "--config", str(config), "serve", "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=config.parent,
                start_new_session=True,
            )
        try:
            self.url = self._told_address()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _told_address(self) -> str:
        until = monotonic() + STARTS_WITHIN
        while monotonic() < until:
            told = self._log.read_text(encoding="utf-8", errors="replace")
            if found := re.search(r"http://[\w.:\[\]-]+:\d+/mcp", told):
                return found[0]
            if self._process.poll() is not None:
                raise SystemExit(f"`onetool serve` ended with {self._process.returncode} and said:\n{told}")
            sleep(0.05)
        raise SystemExit(f"`onetool serve` told no address within {STARTS_WITHIN} s; it said:\n{told}")

    def stop(self) -> list[str]:
        """Ask it to end; give what was wrong with how it did."""
        wrong = []
        if self._process.poll() is not None:
            wrong.append(f"it had ended before, with {self._process.returncode}")
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(ENDS_WITHIN)
            if code and not wrong:
                wrong.append(f"its exit code is {code}")
        except subprocess.TimeoutExpired:
            wrong.append(f"it was still there {ENDS_WITHIN} s after SIGTERM")
            self._process.kill()
            self._process.wait()
        return wrong + self._left_over()

    def _left_over(self) -> list[str]:
        """Whatever it started is in its process group, which is gone with the last of them."""
        until = monotonic() + 2
        while monotonic() < until:
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return []
            sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return ["it left processes behind"]
