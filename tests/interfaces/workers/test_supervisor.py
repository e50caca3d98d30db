"""The supervisor with workers that do as the test says, and with a real one that loses it."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from helpers import start, until
from interfaces.mcp.servers import children_of, environment
from sources.mcp_servers.harness import is_gone

from onetool.interfaces.workers import supervisor

HERE = Path(__file__).parent
STAND_IN = HERE / "stand_in_worker.py"


class Supervised:
    """A supervisor, and what its workers were told."""

    def __init__(self, folder, count, *program, in_turn=15):
        self._told, self._out = folder / "told", folder / "out"
        with self._out.open("wb") as out:
            self.process = start(
                *(str(count), str(folder / "onetool.yaml"), str(in_turn), *map(str, program)),
                script=HERE / "supervise.py",
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self):
        return self._out.read_text()

    def told(self):
        """Without their beginnings."""
        return [line for line in self._lines() if "serves" not in line]

    def pids(self):
        """The process of each worker, by its number."""
        return {line.split()[0]: int(line.split()[2]) for line in self._lines() if "serves" in line}

    def _lines(self):
        return self._told.read_text().splitlines() if self._told.exists() else []

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def supervise(tmp_path):
    made = []

    def begin(mode, count=3, **options):
        made.append(Supervised(tmp_path, count, "-S", STAND_IN, tmp_path, mode, **options))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def test_it_gives_up_when_no_worker_stays_alive(supervise):
    made = supervise("ends", 1)
    assert made.process.wait(40) == 0
    said = made.said()
    assert "6 times in a row, and no other worker is running; see its log 3" in said
    assert said.count("has ended with exit code 3; it is replaced now") == 1  # then it waits longer and longer
    assert "has ended with exit code 3; it is replaced in 0.004 s" in said


def test_workers_stop_one_after_the_other(supervise):
    made = supervise("stays")
    until(lambda: "hello" in made.said())
    made.process.send_signal(signal.SIGINT)
    assert made.process.wait(40) == 0
    assert made.told() == ["1 stop", "2 stop", "3 stop"]
    assert made.said().endswith("stopped by 2\n")


def test_a_second_signal_stops_all_at_once(supervise):
    made = supervise("stubborn")
    until(lambda: "hello" in made.said())
    made.process.terminate()
    until(lambda: made.told() == ["1 stop"])
    made.process.terminate()
    assert made.process.wait(40) == 0
    assert made.said().endswith("stopped by 15\n")


def test_who_is_stopping_already_is_not_hurried_when_the_others_are_told(supervise):
    made = supervise("stubborn", in_turn=0.1)
    until(lambda: "hello" in made.said())
    made.process.terminate()
    until(lambda: {"1 stop", "2 stop", "3 stop"} <= set(made.told()))
    os.kill(made.pids()["1"], signal.SIGUSR1)  # it would have ended by a second signal
    until(lambda: "1 was reloaded" in made.told())
    assert sorted(made.told()) == ["1 stop", "1 was reloaded", "2 stop", "3 stop"]
    made.process.terminate()
    assert made.process.wait(40) == 0


def test_the_folder_of_the_workers_outlives_a_logout(tmp_path, monkeypatch):
    """XDG_RUNTIME_DIR is removed then."""
    for name in ("t", "x"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "x"))
    assert supervisor._private_folder().parent == tmp_path / "t"


def test_a_signal_reloads_one_after_the_other(supervise):
    made = supervise("stays")
    until(lambda: "hello" in made.said())
    made.process.send_signal(signal.SIGHUP)
    until(lambda: made.told() == ["1 reload", "2 reload", "3 reload"])


def test_if_the_first_cannot_reload_the_others_are_not_asked(supervise):
    made = supervise("refuses")
    until(lambda: "hello" in made.said())
    made.process.send_signal(signal.SIGHUP)
    until(lambda: made.told() == ["1 reload"])
    os.kill(made.pids()["1"], signal.SIGUSR1)  # what comes after it shows that it was over
    until(lambda: made.told() == ["1 reload", "1 was reloaded", "2 reload"])


def test_a_reload_of_one_is_passed_on_to_the_others(supervise):
    made = supervise("stays")
    until(lambda: "hello" in made.said())
    os.kill(made.pids()["2"], signal.SIGUSR1)
    until(lambda: made.told() == ["2 was reloaded", "1 reload", "3 reload"])


def test_when_the_supervisor_is_killed_the_worker_ends(tmp_path):
    (tmp_path / "onetool.yaml").write_text("")
    made = Supervised(tmp_path, 1)
    try:
        until(lambda: "OneTool listens on" in made.said(), 40)
        (worker,) = children_of(made.process.pid)
    finally:
        made.end()
    assert is_gone(worker)
