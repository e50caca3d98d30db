"""What tools need: declared by decorators, looked for on request, with real commands and distributions."""

import os
import signal
import sys
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import executor_for, run, until

from onetool import Registry, ToolSpec
from onetool.core.spec import Requirement
from onetool.sdk import requirements
from onetool.sdk.context import LogSpan
from onetool.sdk.decorators import marks_of, tool
from onetool.sdk.requirements import check, check_deps, requirements_of, requires_cli, requires_lib


@pytest.fixture(autouse=True)
def nothing_decorated(monkeypatch):
    monkeypatch.setattr(requirements, "_decorated", {})


@pytest.fixture
def command(tmp_path, monkeypatch):
    """`command(name, script)` puts a command on the path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(name, script):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return write


@pytest.fixture
def library(tmp_path, monkeypatch):
    """`library(module, distribution, version)` installs one."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(module, distribution=None, version="1.0"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('must not be imported')\n")
        if distribution:
            info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
            (info / "RECORD").write_text(f"{module}.py,,\n")

    return write


def finding(kind, name, **more):
    [[found]] = check({"t": [Requirement(kind=kind, name=name, **more)]}).values()
    return found


# Declaring


def test_decorators_stack_in_the_order_in_which_they_are_written():
    @requires_cli("rg", install="apt install ripgrep")
    @requires_lib("pandas", minimum="2")
    @requires_cli("git")
    def search():
        return "found"

    assert [(need.kind, need.name) for need in requirements_of(search)] == [
        ("cli", "rg"),
        ("lib", "pandas"),
        ("cli", "git"),
    ]
    assert search() == "found"


def test_the_function_itself_stays_as_it_is():
    def search():
        pass

    assert requires_cli("rg")(search) is search
    assert requirements_of(len) == ()


def test_the_order_among_other_decorators_does_not_matter():
    def other(function):
        @wraps(function)
        def call(*args):
            return function(*args)

        return call

    @requires_cli("a")
    @other
    @tool(pure=True)
    @requires_lib("b")
    @LogSpan("x")
    @requires_cli("c")
    def search():
        pass

    assert [need.name for need in requirements_of(search)] == ["a", "b", "c"]
    assert marks_of(search).pure
    assert [need["name"] for need in check_deps()["test_requirements.search"]] == ["a", "b", "c"]


def test_the_same_requirement_twice_counts_once():
    @requires_cli("rg")
    @requires_cli("rg")
    def search():
        pass

    assert len(requirements_of(search)) == 1


def test_a_minimum_asks_for_the_version_in_the_usual_way():
    assert requirements_of(requires_cli("rg", minimum="13")(lambda: None))[0].version_flag == "--version"


@pytest.mark.parametrize("decorator", [requires_cli, requires_lib])
def test_a_minimum_that_is_no_version_is_refused_at_once(decorator):
    with pytest.raises(ValueError, match="'latest'"):
        decorator("rg", minimum="latest")


# Commands


def test_a_command_that_is_there_and_one_that_is_not(command):
    command("here", "exit 3")
    assert finding("cli", "here")["status"] == "ok"
    assert finding("cli", "not-here", install="apt install it", minimum="2", version_flag="-V") == {
        "kind": "cli",
        "name": "not-here",
        "status": "missing",
        "version": None,
        "minimum": "2",
        "install": "apt install it",
    }


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("ripgrep 13.0.0 (rev af6b6c543b)", "13.0.0"),
        ("ffmpeg version n4.4.1-3ubuntu Copyright (c) 2000-2021", "4.4.1"),
        ("git version 2.39.2", "2.39.2"),
        ("go version go1.21.3 linux/amd64", "1.21.3"),
        ("jq-1.6", "1.6"),
        ("\n7-Zip (a) 16.02", "16.02"),
        ('openjdk version "17" 2021-09-14', "17"),
        ("Python 3.13.0rc2", "3.13.0"),
        ("no idea", None),
        ("", None),
    ],
)
def test_versions_as_commands_print_them(command, output, version):
    command("tool", f"cat <<'END'\n{output}\nEND")
    assert finding("cli", "tool", version_flag="--version")["version"] == version


def test_a_version_on_standard_error_and_a_bad_exit_code_will_do(command):
    command("tool", 'test "$1" = -version && echo "tool 1.2" >&2; exit 1')
    assert finding("cli", "tool", version_flag="-version")["version"] == "1.2"


def test_the_flag_is_no_shell_code(command, tmp_path):
    command("tool", 'echo "$# 1.5"')
    assert finding("cli", "tool", version_flag=f"; touch {tmp_path}/pwned")["version"] == "1.5"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("version", "minimum", "status"),
    [
        ("1.10.0", "1.9", "ok"),
        ("1.9", "1.10", "outdated"),
        ("2.0.0", "2", "ok"),
        ("2", "2.0.0", "ok"),
        ("2", "2.0.1", "outdated"),
        ("0.9", "0", "ok"),
        ("no version", "1", "outdated"),
    ],
)
def test_outdated(command, version, minimum, status):
    command("tool", f"echo tool {version}")
    assert finding("cli", "tool", version_flag="--version", minimum=minimum)["status"] == status


def test_a_command_that_waits_for_input_gets_none(command):
    command("tool", "read line; echo 1.5")
    assert finding("cli", "tool", version_flag="--version")["version"] == "1.5"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_command_that_hangs_is_killed_with_its_children(command, tmp_path, monkeypatch):
    monkeypatch.setattr(requirements, "SECONDS", 0.3)
    command("tool", f"echo 1.5; sleep 60 & echo $! > {tmp_path}/child; sleep 60")
    assert finding("cli", "tool", version_flag="--version")["version"] == "1.5"
    until(lambda: not lives(tmp_path / "child"))


def lives(noted):
    """Whether a process runs whose id was noted in a file."""
    stat = Path(f"/proc/{noted.read_text().strip()}/stat")
    with suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_child_that_is_left_behind_is_not_waited_for(command, tmp_path):
    command("tool", f"sleep 60 & echo $! > {tmp_path}/child; echo 1.5")
    assert finding("cli", "tool", version_flag="--version")["version"] == "1.5"
    assert lives(tmp_path / "child")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_command_that_never_ends_to_print_is_stopped(command, monkeypatch):
    monkeypatch.setattr(requirements, "SECONDS", 10**6)
    command("tool", "exec yes 1.5")
    assert finding("cli", "tool", version_flag="--version")["version"] == "1.5"


def test_a_number_without_end(command):
    command("tool", "head -c 20000 /dev/zero | tr '\\0' 1")
    assert finding("cli", "tool", version_flag="--version", minimum="1")["status"] == "ok"


def test_a_file_that_cannot_be_run_is_missing(tmp_path, command):
    command("tool", "")
    (tmp_path / "tool").write_text("#!/no/such/interpreter\n")
    assert finding("cli", "tool", version_flag="--version")["status"] == "missing"


def test_what_many_tools_need_is_looked_for_once_and_all_at_the_same_time(command, tmp_path):
    # Each tells its version when all five have begun: one after the other, none ever would.
    together = f"while [ $(ls {tmp_path}/begun.* | wc -l) -lt 5 ]; do sleep 0.02; done"
    command("tool", f"echo x >> {tmp_path}/runs; touch {tmp_path}/begun.tool; {together}; echo 1.5")
    for number in range(4):
        command(f"other{number}", f"touch {tmp_path}/begun.{number}; {together}; echo 2.5")
    need = Requirement(kind="cli", name="tool", version_flag="-V")
    others = [Requirement(kind="cli", name=f"other{number}", version_flag="-V") for number in range(4)]
    report = check({"a.x": [need], "a.y": [need, *others], "b.z": []})
    assert [found["version"] for found in report["a.y"]] == ["1.5", *["2.5"] * 4]
    assert report["a.x"] == report["a.y"][:1]
    assert report["b.z"] == []
    assert (tmp_path / "runs").read_text() == "x\n"


# Libraries


def test_a_library_by_its_module_s_name(library):
    library("wobble", "Wobble", "1.9.0")
    assert finding("lib", "wobble") == {
        "kind": "lib",
        "name": "wobble",
        "status": "ok",
        "version": "1.9.0",
        "minimum": None,
        "install": None,
    }
    assert finding("lib", "wobble", minimum="1.10")["status"] == "outdated"
    assert "wobble" not in sys.modules


def test_a_library_whose_distribution_has_another_name(library):
    library("wobbly", "python-wobble", "3.0rc1")
    found = finding("lib", "wobbly", minimum="2.5")
    assert (found["version"], found["status"]) == ("3.0rc1", "ok")
    assert finding("lib", "python-wobble")["version"] == "3.0rc1"
    assert finding("lib", "yaml")["version"]


def test_a_library_without_a_distribution(library):
    library("wobblest")
    names = [Requirement(kind="lib", name="wobblest"), Requirement(kind="lib", name="wobblest", minimum="1")]
    found = check({"t": [*names, Requirement(kind="lib", name="sqlite3")]})["t"]
    assert [one["version"] for one in found] == [None, None, None]
    assert [one["status"] for one in found] == ["ok", "outdated", "ok"]


@pytest.mark.parametrize("name", ["no_such_lib", "no_such.lib", "json.no_such", "", ".", "a b"])
def test_a_library_that_is_not_there(name):
    assert finding("lib", name)["status"] == "missing"


def test_a_dotted_name_whose_package_fails_is_missing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "breaks").mkdir()
    (tmp_path / "breaks" / "__init__.py").write_text("1 / 0")
    assert finding("lib", "breaks.inner")["status"] == "missing"
    assert finding("lib", "os.path")["status"] == "ok"


# Which tools


def decorated(name, pack=None, **names):
    """A function of a module of its own, decorated as if it had just been imported."""
    module = SimpleNamespace(**({"pack": pack} if pack else {}))
    sys.modules[f"some.{name}_module"] = module

    def function():
        pass

    function.__module__, function.__name__, function.__qualname__ = f"some.{name}_module", name, name
    requires_cli("nonexistent")(function)
    return function


@pytest.fixture
def two_packs():
    decorated("search", pack="ripgrep")
    decorated("list")
    yield
    del sys.modules["some.search_module"], sys.modules["some.list_module"]


def test_outside_of_an_app_the_decorated_functions_are_the_tools_and_it_says_so(two_packs, caplog):
    assert list(check_deps()) == ["ripgrep.search", "list_module.list"]
    assert list(check_deps("ripgrep")) == ["ripgrep.search"]
    assert list(check_deps(tool="list_module.list")) == ["list_module.list"]
    assert check_deps("ripgre") == {}
    assert "no app is running" in caplog.text


def test_a_name_that_the_decorator_gave_counts():
    tool(name="find")(decorated("search", pack="ripgrep"))
    assert list(check_deps()) == ["ripgrep.find"]
    del sys.modules["some.search_module"]


def test_a_module_that_is_loaded_again_replaces_its_own(two_packs):
    decorated("search", pack="rg")
    assert list(check_deps()) == ["rg.search", "list_module.list"]


def app_with(*specs, **options):
    registry = Registry()
    for spec in specs:
        registry.register(spec)
    environment = SimpleNamespace(snapshot=registry.snapshot, calls=None)

    def ask(tool: str | None = None):
        return check_deps(tool)

    schema = {"type": "object", "properties": {"tool": {"type": "string"}}}
    return executor_for(ask, schema, environment=environment, **options)


NEEDS = (Requirement(kind="cli", name="nonexistent"),)
SPECS = (
    ToolSpec(name="ripgrep.search", description="d", requires=NEEDS),
    ToolSpec(name="ripgrep.count", description="d", requires=NEEDS),
    ToolSpec(name="ripgrep.about", description="d"),
    ToolSpec(name="plain", description="d", requires=NEEDS),
)


def test_inside_of_an_app_its_tools_are(two_packs):
    app = app_with(*SPECS)
    assert list(run(app).data) == ["ripgrep.search", "ripgrep.count", "plain"]
    assert list(run(app, tool="ripgrep").data) == ["ripgrep.search", "ripgrep.count"]
    assert list(run(app, tool="ripgrep.count").data) == ["ripgrep.count"]
    assert list(run(app, tool="config").data) == ["plain"]
    assert run(app, tool="ripgrep.about").data == {}


def test_inside_of_an_app_an_unknown_name_is_a_mistake():
    result = run(app_with(*SPECS), tool="ripgrap")
    assert result.error.message == "ValueError: No such pack or tool: ripgrap; did you mean ripgrep?"


def test_inside_of_an_app_only_what_the_call_may_use_is_shown():
    app = app_with(*SPECS, allowed=["t", "ripgrep.count"])
    assert list(run(app).data) == ["ripgrep.count"]
