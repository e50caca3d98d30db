"""The wheel: its name, its size, what it depends on, and that its commands run where it is installed."""

import json
import subprocess
import sys
import sysconfig
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from flit_core import wheel

import onetool

ROOT = Path(__file__).parents[1]
NAME = "onetool-layer"
MAX_WHEEL_BYTES = 9_000_000
OTHER_PROJECTS = ("onetool", "onetool-mcp")  # on the package index: both have a package and a command `onetool`


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return wheel.make_wheel_in(ROOT / "pyproject.toml", tmp_path_factory.mktemp("wheel")).file


@pytest.fixture(scope="module")
def metadata(built):
    with ZipFile(built) as archive:
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(file).decode())


@pytest.fixture(scope="module")
def commands(built, tmp_path_factory):
    """The folder of commands of an environment with the wheel; the dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = Path(paths["scripts"], "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, built], check=True)
    return Path(paths["scripts"])


def output(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_wheel_is_small(built):
    assert built.stat().st_size < MAX_WHEEL_BYTES


def test_the_distribution_has_a_name_of_its_own(metadata):
    assert metadata["Name"] == NAME
    for file in ("README.md", "docs/internals/decisions/0035-the-distribution-has-another-name.md"):
        text = (ROOT / file).read_text("utf-8")
        assert all(f"`{name}`" in text for name in (NAME, *OTHER_PROJECTS)), file


def test_search_by_meaning_needs_no_extra(metadata):
    required = [one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one]
    assert [one for one in required if one.startswith("numpy")]
    assert metadata.get_all("Provides-Extra") == ["cluster", "keyring", "otel"]


@pytest.mark.long
@pytest.mark.parametrize("command", ["onetool", NAME])
def test_both_commands_run_what_was_installed(commands, command, tmp_path):
    assert output(commands / command, "--version", cwd=tmp_path) == f"onetool {onetool.__version__}\n"
    found = json.loads(output(commands / command, "tools", "search", "which hour is it", cwd=tmp_path))
    assert found[0]["name"] == "time.now"
    where = output(commands / "python", "-c", "import onetool; print(onetool.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(commands.parent)


@pytest.mark.long
def test_the_command_with_the_name_of_the_distribution_serves(commands, tmp_path):
    with subprocess.Popen(
        [commands / NAME, "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert any("listens on http://127.0.0.1:" in line for line in server.stdout)
        finally:
            server.terminate()


def test_clients_are_told_the_command_onetool(commands, tmp_path):
    """Also where a user has typed the other name."""
    shown = output(commands / NAME, "init", "--client", "cursor", cwd=tmp_path)
    assert str(commands / "onetool") in shown
