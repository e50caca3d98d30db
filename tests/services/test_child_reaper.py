"""What is left when we are killed: real processes, a real shell that ends them."""

import os
import shutil
import subprocess
import sys
import textwrap
import time

import pytest
from helpers import until

SCRIPT = """
    import subprocess, sys, time
    from onetool.services import child_reaper as watch
    watch.PROC = sys.argv[1]
    child = subprocess.Popen(["sleep", "60"], process_group=0 if sys.argv[2] == "group" else None)
    guard = watch.ChildReaper()
    guard.add(child.pid)
    print(child.pid, flush=True)
    time.sleep(60)
"""


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:  # a zombie has ended: only nobody has asked
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def ends(pid):
    return until(lambda: not lives(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="the test looks into /proc")
@pytest.mark.parametrize("group", ["group", "no group"])
@pytest.mark.parametrize("proc", ["/proc", "/nothing/is/here"])
def test_a_process_ends_after_its_starter_was_killed(proc, group):
    """Also where there is no /proc, by `ps`; and whether it leads a group or not."""
    if proc != "/proc" and shutil.which("ps") is None:
        pytest.skip("ps is not installed: nothing else tells when a process was started")
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), proc, group], stdout=subprocess.PIPE)
    try:
        pid = int(starter.stdout.readline())
        time.sleep(0.3)  # so that the shell has asked `ps`
        assert lives(pid)
    finally:
        starter.kill()
        starter.communicate()
    assert ends(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the test looks into /proc")
def test_a_number_that_another_process_has_by_now_is_not_killed():
    """The shell knows processes by their start, too."""
    from onetool.services import child_reaper

    other = subprocess.Popen(["sleep", "60"])
    guard = child_reaper.ChildReaper()
    try:
        guard.add(other.pid)
        os.write(guard._pipe, f"{os.getpid()} 1\n".encode())  # as if our number had been another's
        guard.close()
        assert other.wait(10) == -9
    finally:
        other.kill()
        other.wait()
