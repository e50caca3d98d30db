"""What commands of `onetool bundles` open by its name: files, and nothing that may never begin or end."""

import io
import os
from contextlib import suppress
from threading import Thread

import pytest
from interfaces.cli.bundling import did, refused
from interfaces.cli.bundling import here as here  # a fixture

from onetool.interfaces.cli import inputs

SECONDS = 10.0


def within(act, pipe):
    """What it gives; who waits at a pipe is let go."""
    gave = []
    thread = Thread(target=lambda: gave.append(act()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    is_stuck = thread.is_alive()
    for flags in (os.O_RDONLY, os.O_WRONLY):
        with suppress(OSError):
            os.close(os.open(pipe, flags | os.O_NONBLOCK))
    thread.join(SECONDS)
    assert not is_stuck
    return gave[0]


@pytest.mark.parametrize("command", [("import",), ("add", "weather/forecast")])
def test_a_pipe_is_not_waited_for(here, command):
    pipe = here / "pipe"
    os.mkfifo(pipe)
    did("create", "weather")
    assert "is not a regular file" in within(lambda: refused(*command, pipe), pipe)


def test_what_never_ends_is_not_read(here):
    assert "/dev/zero is not a regular file" in refused("import", "/dev/zero")
    assert "Is a directory" in refused("import", ".")


def test_nothing_is_written_into_a_pipe(here):
    pipe = here / "pipe"
    os.mkfifo(pipe)
    did("create", "weather")
    told = within(lambda: refused("export", "weather", "-o", pipe, "--force"), pipe)
    assert "Can't write" in told
    assert "not a regular file" in refused("export", "weather", "-o", "/dev/null", "--force")


def test_standard_input_without_a_descriptor_is_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Oslo"))
    assert inputs.has_input()
