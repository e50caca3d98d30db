"""A folder with a config, and processes from which all is hidden that POSIX has and Windows has not."""

import os
from pathlib import Path

import pytest
from helpers import cli

PACK = '''"""Greets."""


def hello(name: str) -> str:
    """Greet."""
    return f"Hello {name}"
'''
HIDDEN = Path(__file__).parent / "hidden"


def hidden_environment(**more):
    paths = [str(HIDDEN), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    on_linux = {"NUMPY_MADVISE_HUGEPAGE": "1"}  # else numpy asks for the version of Linux, which is hidden
    return {**os.environ, **on_linux, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


@pytest.fixture
def folder(tmp_path):
    """`notes` is the allowed folder of `fs`; beside it is a file that no tool may read."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "outside.txt").write_text("not for you")
    (tmp_path / "pack.py").write_text(
        '"""Greets."""\n\n\ndef hello(name: str) -> str:\n    """Greet."""\n    return f"Hello {name}"\n'
    )
    (tmp_path / "onetool.yaml").write_text("packs: [pack.py]\nfs:\n  roots: [notes]\n")
    return tmp_path


@pytest.fixture
def onetool(folder):
    """Run the command line; gives its standard output, or the whole result with `fails`."""

    def run(*args, stdin=None, fails=False, **env):
        hidden = hidden_environment(**{"ONETOOL_CONFIG": str(folder / "onetool.yaml"), **env})
        done = cli(*args, cwd=folder, stdin=stdin, env=hidden)
        assert fails == bool(done.returncode), done.stderr + done.stdout
        return done if fails else done.stdout

    return run
