"""Servers start beside everything else that does: neither may be in the other's way."""

import os
import subprocess
import sys

import pytest

TOGETHER = """
import sys, sysconfig, threading
from importlib import import_module
from onetool import App

asked, answer, read = threading.Event(), threading.Event(), sysconfig._init_posix

def slowly(known):
    if threading.current_thread() is not threading.main_thread():
        asked.set()
        answer.wait(20)
    read(known)

sysconfig._init_posix = slowly
with App.open(sys.argv[1]) as app:
    sdk = threading.Thread(target=import_module, args=["onetool.sources.mcp_servers.opening"])
    sdk.start()
    while sdk.is_alive() and not asked.wait(0.02):
        pass
    try:
        app.runtime.warm()
    finally:
        answer.set()
        sdk.join()
    import zoneinfo
    assert zoneinfo.TZPATH
print("both are ready")
"""


@pytest.mark.long
@pytest.mark.skipif(sys.version_info >= (3, 12) or os.name != "posix", reason="Python itself takes care there")
def test_the_sandbox_can_start_while_the_sdk_is_imported(harness):
    """Both ask how Python was built, and before 3.12 whoever asked second got half an answer."""
    config = harness.config({"good": harness.nasty("ok")})
    env = {**os.environ, "HOME": str(harness.folder), "ONETOOL_HOME": str(harness.folder / "state")}
    command = [sys.executable, "-c", TOGETHER, str(config)]
    done = subprocess.run(command, env=env, cwd=harness.folder, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("both are ready\n", "", 0)
