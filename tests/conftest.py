"""Give every test its own home, so that no test reads or writes the developer's config, state or secrets."""

import atexit
import gc
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from helpers import BROWSER_FILES, examples, set_level
from hypothesis import HealthCheck, settings
from warm import NO_SYNC, SOCKET, set_constants, start_fork_server

from onetool.database import sqlite as _loaded  # noqa: F401 - whose constants are set below
from onetool.interfaces.cli import options

FOLDER = Path(tempfile.mkdtemp(prefix="onetool-tests-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
os.environ["TMPDIR"] = str(FOLDER)  # for commands: one that is killed can't remove its temporary files


def empty_homes():
    """Yield an empty folder: the previous one, or a new one if a test has written to it."""
    for number in count():
        home = FOLDER / f"home{number}"
        home.mkdir(mode=0o700)
        while home.is_dir() and not os.listdir(home):
            yield home


OTHER_TARGETS = ("browser", "replicas")  # folders whose tests have targets of their own
HOMES, FOLDER_NUMBERS = empty_homes(), count()
STORAGE_LOG = logging.getLogger("onetool.database.storage")  # commands disable it

# Module fixtures start before `own_home` and use this home.
os.environ["HOME"] = str(FOLDER / "session")
os.mkdir(os.environ["HOME"], 0o700)
for name in ("ONETOOL_CONFIG", "ONETOOL_HOME", "ONETOOL_LOG"):
    os.environ.pop(name, None)

set_constants(NO_SYNC)

# Commands claim standard output for the rest of their process, which runs tests here.
options.claim_stdout = lambda: None

# A busy machine isn't a failure. How many inputs a filter rejects is random: one run in some hundreds would fail.
unchecked = [HealthCheck.filter_too_much, HealthCheck.too_slow]
settings.register_profile("project", deadline=None, max_examples=examples(60), suppress_health_check=unchecked)
settings.load_profile("project")

# Each new HTTP client loads the system's certificate authorities, which takes 50 ms. No test needs them.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "data" / "nobody.pem")

# Shells start background jobs with SIGINT ignored, and children inherit that. Tests that interrupt a child need the
# default there: a signal with a Python handler is reset to it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of collected tests and all modules live until the end. Garbage collections needn't traverse them.
gc.disable()


@pytest.hookimpl(tryfirst=True)  # before tests are grouped by their fixtures
def pytest_collection_modifyitems(config, items):
    """Add the area of each attack test to its report, for `make attack`.

    Of an attack with many cases, `make test` runs the first four and every fifth of the others.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)  # workers must agree on the order: see `files_for`
    cases = Counter()
    for item in items:
        if mark := item.get_closest_marker("attack"):
            item.user_properties.append(("attack", mark.args))
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > 4 and cases[function] % 5:
                item.add_marker("long")


def files_for(worker):
    """Return the files of `make test`, starting with a different one for each worker.

    Without bytecode, the first worker that imports a file rewrites its asserts for the others. In the same order, all
    workers would rewrite all files.
    """
    found = Path(__file__).parent.rglob("test_*.py")
    files = sorted(str(file) for file in found if file.parent.name not in OTHER_TARGETS or file.name in BROWSER_FILES)
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    return files[first:] + files[:first]


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)  # the usual one takes a twentieth of the time of tests
    gc.enable()


def pytest_configure(config):
    """Start the fork server of all workers, or prepare a worker: order its files, and send one message per passed test
    instead of four.

    A message costs as much CPU as a small test. `--durations` needs all messages.
    """
    if not hasattr(config, "workerinput"):
        os.environ.pop(SOCKET, None)  # of a run that started this one
        if sys.platform == "linux" and getattr(config.option, "numprocesses", None) and not config.option.collectonly:
            start_fork_server()
        return
    if config.args == ["tests"] and config.option.markexpr == "not long":
        config.args = files_for(config.workerinput)
    if config.option.durations is not None:
        return
    worker = next(plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "sendevent"))
    send = worker.sendevent

    def send_needed(name, **event):
        passed_step = name == "testreport" and event["data"]["when"] != "call" and event["data"]["outcome"] == "passed"
        if name != "logstart" and not passed_step:
            send(name, **event)

    worker.sendevent = send_needed


@pytest.fixture(autouse=True)
def own_home():
    """Give each test an empty home, and undo the logging setup of its command line.

    No other fixture here is autouse: each costs the whole suite some seconds.
    """
    home = next(HOMES)
    before, os.environ["HOME"] = os.environ["HOME"], str(home)
    yield home
    os.environ["HOME"] = before
    log = logging.getLogger("onetool")
    log.handlers, log.propagate = [], True
    set_level(log, logging.NOTSET)
    set_level(STORAGE_LOG, logging.NOTSET)


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """Return an empty folder, like pytest's fixture, which lists the folders of all tests to find a free name."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{next(FOLDER_NUMBERS)}_{name}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def live_tools():
    """Return 527 tools of 70 real MCP servers."""
    return json.loads((Path(__file__).parent / "data" / "livemcp.json").read_text())["tools"]
