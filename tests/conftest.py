"""Every test has a home of its own: no test reads or writes the developer's config, state or secrets."""

import atexit
import gc
import json
import logging
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from helpers import examples
from hypothesis import HealthCheck, settings
from warm import NO_SYNC, set_constants

from onetool.database import sqlite as _loaded  # noqa: F401 - whose constants are set below
from onetool.interfaces.cli import options

FOLDER = Path(tempfile.mkdtemp(prefix="onetool-tests-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def empty_homes():
    """Yield empty folders: the same one again until a test has written to it."""
    for number in count():
        home = FOLDER / f"home{number}"
        home.mkdir(mode=0o700)
        while home.is_dir() and not os.listdir(home):
            yield home


HOMES, FOLDER_NUMBERS = empty_homes(), count()
STORAGE_LOG = logging.getLogger("onetool.database.storage")  # commands turn it off

# Fixtures of modules start before `own_home`. They get a home of the session, never the developer's.
os.environ["HOME"] = str(FOLDER / "session")
os.mkdir(os.environ["HOME"], 0o700)
for name in ("ONETOOL_CONFIG", "ONETOOL_HOME", "ONETOOL_LOG"):
    os.environ.pop(name, None)

set_constants(NO_SYNC)

# A command claims standard output for the rest of its process, which here runs tests.
options.claim_stdout = lambda: None

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


@pytest.hookimpl(tryfirst=True)  # before tests are grouped by their fixtures
def pytest_collection_modifyitems(config, items):
    """Name the area of each attack test in its report, which `make attack` counts.

    Of an attack with many cases, `make test` tries the first twelve and every fifth of the others.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)  # each worker began with another file: see `files_for`
    cases = Counter()
    for item in items:
        if mark := item.get_closest_marker("attack"):
            item.user_properties.append(("attack", mark.args))
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > 12 and cases[function] % 5:
                item.add_marker("long")


def files_for(worker):
    """Return all test files, beginning with another one for each worker.

    The worker that imports a file first rewrites its asserts for all. In one order, all would rewrite all files.
    """
    found = Path(__file__).parent.rglob("test_*.py")
    files = sorted(str(file) for file in found if file.parent.name != "replicas")  # `make test-cluster` names it
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    return files[first:] + files[:first]


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_configure(config):
    """Prepare a worker: divide the files, and send one message per passed test instead of four.

    A message costs both processes as much as a small test does. `--durations` needs all of them.
    """
    if not hasattr(config, "workerinput"):
        return
    if config.args == ["tests"] and not config.option.ignore:  # files that are named are not ignored
        config.args = files_for(config.workerinput)
    if config.option.durations is not None:
        return
    worker = next(plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "sendevent"))
    send = worker.sendevent

    def send_what_matters(name, **said):
        quiet = name == "testreport" and said["data"]["when"] != "call" and said["data"]["outcome"] == "passed"
        if name != "logstart" and not quiet:
            send(name, **said)

    worker.sendevent = send_what_matters


@pytest.fixture(autouse=True)
def own_home():
    """Give each test an empty home, and take back the logging that its command line has set up.

    No other fixture is autouse here: each costs the whole suite some seconds.
    """
    home = next(HOMES)
    before, os.environ["HOME"] = os.environ["HOME"], str(home)
    yield home
    os.environ["HOME"] = before
    log = logging.getLogger("onetool")
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)
    STORAGE_LOG.setLevel(logging.NOTSET)


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """Return an empty folder, as pytest's own fixture, which lists the folders of all tests to find a free name."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{next(FOLDER_NUMBERS)}_{name}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def live_tools():
    """527 tools of 70 real MCP servers."""
    return json.loads((Path(__file__).parent / "data" / "livemcp.json").read_text())["tools"]
