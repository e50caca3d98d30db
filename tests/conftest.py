"""Every test has a home of its own: no test reads or writes the developer's config, state or secrets."""

import atexit
import gc
import json
import logging
import os
import shutil
import signal
import tempfile
from itertools import count
from pathlib import Path

import pytest
from helpers import examples
from hypothesis import HealthCheck, settings

# Fixtures of modules start before `own_home`. They get a home of the session, never the developer's.
os.environ["HOME"] = tempfile.mkdtemp(prefix="onetool-home-")
atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

# A machine that is busy with other tests is no reason to fail.
# How many inputs a filter takes is chance: a run in some hundreds would fail for it.
unchecked = [HealthCheck.filter_too_much, HealthCheck.too_slow]
settings.register_profile("project", deadline=None, max_examples=examples(60), suppress_health_check=unchecked)
settings.load_profile("project")

# A client reads all authorities of the system when it is made, which takes 50 ms, and no test talks to their servers.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "data" / "nobody.pem")

# A job in the background is started with SIGINT ignored, and so would be every process that a test starts and
# interrupts. One that Python handles is at its default in those processes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What collecting makes stays until the end: thousands of tests and all modules. Nothing of it is garbage, and each full
# collection would go through it.
gc.disable()


def pytest_collection_modifyitems(items):
    """Name the area of each attack test in its report, which `make attack` counts."""
    for item in items:
        if mark := item.get_closest_marker("attack"):
            item.user_properties.append(("attack", mark.args[0]))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_configure(config):
    """A worker tells what became of each test, and not also that it has begun, was set up and taken down.

    Each of these messages costs both sides as much as many a test does. Who asks for durations gets them all.
    """
    if not hasattr(config, "workerinput") or config.option.durations is not None:
        return
    worker = next(plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "sendevent"))
    send = worker.sendevent

    def send_what_matters(name, **said):
        quiet = name == "testreport" and said["data"]["when"] != "call" and said["data"]["outcome"] == "passed"
        if name != "logstart" and not quiet:
            send(name, **said)

    worker.sendevent = send_what_matters


@pytest.fixture(scope="session")
def homes(tmp_path_factory):
    """New folders without end, at a third of what `mktemp` takes."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / f"home{number}" for number in count())


@pytest.fixture(autouse=True)
def own_home(homes, monkeypatch):
    home = next(homes)
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for name in ("ONETOOL_CONFIG", "ONETOOL_HOME", "ONETOOL_LOG"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True)
def plain_logging():
    """The command line sets logging up for its process; the next test starts without."""
    yield
    log = logging.getLogger("onetool")
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def own_stdout(monkeypatch):
    """A command claims standard output for the rest of its process, which here runs other tests, too."""
    monkeypatch.setattr("onetool.interfaces.cli.options.claim_stdout", lambda: None)


@pytest.fixture(scope="session")
def live_tools():
    """527 tools of 70 real MCP servers."""
    return json.loads((Path(__file__).parent / "data" / "livemcp.json").read_text())["tools"]
