"""A lock among processes: who has it, who has not, and what of it is told."""

import os
import signal
import subprocess
import sys

import pytest

from onetool.core import flock

HOLDS = """
import os, sys
from onetool.core import flock, system
file = os.open(sys.argv[1], os.O_RDWR)
print(flock.take(file), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file"


@pytest.fixture
def another(path):
    """A process that holds it."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"True\n"
        yield one
        one.kill()


def opened(path):
    return os.open(path, os.O_RDONLY)


def test_one_has_it_until_it_is_given_back(path):
    first, second = opened(path), opened(path)
    assert flock.take(first)
    assert flock.take(first)
    assert not flock.take(second)
    flock.give_back(first)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)
    assert flock.take(second)
    flock.give_back(second)


def test_given_back_it_is_free_though_a_child_has_it_open(path):
    ours, child = opened(path), None
    os.set_inheritable(ours, True)
    assert flock.take(ours)
    try:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
        flock.give_back(ours)
        other = opened(path)
        assert flock.take(other)
        flock.give_back(other)
    finally:
        if child:
            child.kill()
            child.communicate()


def test_whether_the_path_still_leads_there(path):
    file = opened(path)
    assert flock.leads_to(path, file)
    path.rename(path.with_name("moved"))
    assert not flock.leads_to(path, file)
    path.symlink_to("moved")
    assert flock.leads_to(path, file)
    os.close(file)


def test_the_holder_is_named(path, another, monkeypatch):
    told = flock.holder(path)
    assert told is not None
    assert told.startswith(f"process {another.pid} (python")
    another.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, another.pid, os.WSTOPPED | os.WNOWAIT)
    assert flock.holder(path).endswith(", which is stopped)")
    another.send_signal(signal.SIGCONT)
    monkeypatch.setattr(flock.os, "getpid", lambda: another.pid)
    assert flock.holder(path) == "another thread of this process"


def test_nobody_is_named_where_nobody_has_it_or_nothing_is_told(path, monkeypatch):
    assert flock.holder(path) is None
    assert flock.holder(path / "none") is None
    assert flock._process("0") == flock._process("-1") == flock.UNKNOWN
    assert flock._process("999999999") == "process 999999999"
