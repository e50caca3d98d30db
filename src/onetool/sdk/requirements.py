"""`requires_cli` and `requires_lib` declare what a tool needs; `check_deps` checks whether it is installed.

Checks run only on request: a pack with missing requirements still loads and lists its tools.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypedDict, TypeVar

from onetool.core.context import current_call
from onetool.core.spec import Requirement
from onetool.core.text import did_you_mean
from onetool.sdk.decorators import REQUIRES_MARK, marks_of, requirements_of

F = TypeVar("F", bound=Callable[..., Any])
SECONDS = 5.0  # for a command to print its version
MAX_OUTPUT = 65_536

Status = Literal["ok", "missing", "outdated"]

# All decorated functions of this process, by module and name, so that a reloaded module replaces its own. A global,
# because decorators run at import, without an app: scripts and tests that import a pack get reports, too. Apps use the
# specs of their tools instead.
_decorated: dict[tuple[str, str], Callable[..., Any]] = {}


class RequirementFinding(TypedDict):
    """The result of one check. `version` is None if not requested or not found."""

    kind: Literal["cli", "lib"]
    name: str
    status: Status
    version: str | None
    minimum: str | None
    install: str | None


Report = dict[str, list[RequirementFinding]]
"""The findings by tool: `{"ripgrep.search": [{"kind": "cli", "name": "rg", "status": "ok", …}]}`."""


# Declaring


def requires_cli(
    name: str, *, version_flag: str | None = None, minimum: str | None = None, install: str | None = None
) -> Callable[[F], F]:
    """Declare that the tool needs a command: `@requires_cli("rg", minimum="13", install="apt install ripgrep")`.

    `version_flag` is the option that prints the version, by default `--version` if there is a minimum. The function
    itself is unchanged.
    """
    _check_name(name, "requires_cli")
    if minimum is not None and version_flag is None:
        version_flag = "--version"
    return _recorder(Requirement(kind="cli", name=name, version_flag=version_flag, minimum=minimum, install=install))


def _check_name(name: Any, decorator: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f'missing name: write @{decorator}("…")')


def requires_lib(name: str, *, minimum: str | None = None, install: str | None = None) -> Callable[[F], F]:
    """Declare that the tool needs a Python library, by import name or distribution name."""
    _check_name(name, "requires_lib")
    return _recorder(Requirement(kind="lib", name=name, minimum=minimum, install=install))


def _recorder(requirement: Requirement) -> Callable[[F], F]:
    if requirement.minimum is not None and not _numbers(requirement.minimum):
        raise ValueError(f"minimum must be a version like '1.2', not {requirement.minimum!r}")

    def record(function: F) -> F:
        others = (known for known in requirements_of(function) if known != requirement)
        setattr(function, REQUIRES_MARK, (requirement, *others))  # in source order: decorators run from bottom to top
        _decorated[function.__module__, function.__qualname__] = function
        return function

    return record


# Checking


def check_deps(tool: str | None = None) -> Report:
    """Check the requirements of tools and return `ok`, `missing` or `outdated` for each. `tool` is a pack or a
    `pack.tool`.

    Inside of an app, the tools are those that the running call may use, and an unknown name raises ValueError.
    Elsewhere, they are the imported decorated functions, and a warning is logged.
    """
    context = current_call.get()
    environment = context.environment if context else None
    if context is None or environment is None:
        import logging  # not needed for importing a pack

        logging.getLogger("onetool.sdk").warning(
            "check_deps: no app is running; checking only imported decorated functions"
        )
        tools = {_tool_name(function): requirements_of(function) for function in _decorated.values()}
    else:
        tools = {spec.name: spec.requires for spec in environment.snapshot().list(context.allowed)}
    chosen = {name: needs for name, needs in tools.items() if tool is None or tool in (name, _pack(name))}
    if tool is not None and environment is not None and not chosen:
        near = did_you_mean(tool, [*map(_pack, tools), *tools])
        raise ValueError(f"No such pack or tool: {tool}" + (f"; {near}" if near else ""))
    return check({name: needs for name, needs in chosen.items() if needs})


def check(requirements: Mapping[str, Iterable[Requirement]]) -> Report:
    """Check requirements by tool. Shared requirements are checked once; commands run in parallel."""
    from concurrent.futures import ThreadPoolExecutor
    from importlib.metadata import packages_distributions

    by_tool = {name: tuple(needs) for name, needs in requirements.items()}
    unique = dict.fromkeys(need for needs in by_tool.values() for need in needs)
    owners = cache(packages_distributions)  # reads all installed distributions: at most once
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="onetool-check") as pool:
        commands = {need: pool.submit(_find_command, need) for need in unique if need.kind == "cli"}
        findings = {need: _finding(need, *_find_library(need.name, owners)) for need in unique if need.kind == "lib"}
    findings |= {need: _finding(need, *command.result()) for need, command in commands.items()}
    return {name: [findings[need] for need in needs] for name, needs in by_tool.items()}


def _tool_name(function: Callable[..., Any]) -> str:
    """Return the name of a function's tool. Computed late: `pack` and `@tool(name=…)` may be set after this decorator
    runs.
    """
    module = sys.modules.get(function.__module__)
    pack = getattr(module, "pack", None) or function.__module__.rpartition(".")[2]
    return f"{pack}.{marks_of(function).name or function.__name__}"


def _pack(name: str) -> str:
    pack, dot, _ = name.partition(".")
    return pack if dot else "config"  # the pack of tools without a dot


def _finding(need: Requirement, is_there: bool, version: str | None) -> RequirementFinding:
    minimum = need.minimum  # an unknown version counts as outdated
    new_enough = minimum is None or (version is not None and _numbers(version) >= _numbers(minimum))
    return RequirementFinding(
        kind=need.kind,
        name=need.name,
        status="missing" if not is_there else "ok" if new_enough else "outdated",
        version=version,
        minimum=minimum,
        install=need.install,
    )


# Versions


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers for comparison: 1.10 > 1.9, and 2 equals 2.0. Suffixes such as `rc1` are ignored."""
    release = re.match(r"\s*v?(?:\d+!)?(\d{1,9}(?:\.\d{1,9})*)", version)
    numbers = [int(part) for part in release[1].split(".")] if release else []
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# Commands


def _find_command(need: Requirement) -> tuple[bool, str | None]:
    """Return whether the command exists, and its version if the requirement has a version flag."""
    import shutil

    path = shutil.which(need.name)
    if path is None or need.version_flag is None:
        return path is not None, None
    try:
        output = _output_of(path, need.version_flag)
    except OSError:
        return False, None  # a file that can't be executed
    for line in output.splitlines():
        if version := re.search(r"\d{1,9}(?:\.\d{1,9})+", line) or re.search(r"\d{1,9}", line):
            return True, version[0]
    return True, None


def _output_of(path: str, flag: str) -> str:
    """Return the beginning of a command's output. Commands that hang or print endlessly are killed.

    The output goes to a file, because a background process of the command would keep a pipe open.
    """
    import signal
    from subprocess import DEVNULL, STDOUT, Popen
    from tempfile import TemporaryFile

    with (
        TemporaryFile() as output,
        Popen([path, flag], stdin=DEVNULL, stdout=output, stderr=STDOUT, start_new_session=True) as process,  # noqa: S603
    ):
        give_up = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < give_up:
            if os.fstat(output.fileno()).st_size > MAX_OUTPUT:
                break
            time.sleep(0.005)
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # kills the processes that it started, too
        output.seek(0)
        return output.read(MAX_OUTPUT).decode(errors="replace")


# Libraries


def _find_library(name: str, owners: Callable[[], Mapping[str, list[str]]]) -> tuple[bool, str | None]:
    """Return whether the library is installed, and its version if the distribution is known. The library is not
    imported.

    `owners` returns the distributions by module: `yaml` comes from PyYAML.
    """
    from importlib.util import find_spec

    top = name.partition(".")[0]
    version = _version_of(name) or _version_of(name.replace(".", "-"))
    is_there = version is not None
    with suppress(Exception):  # for a dotted name, the outer package is imported and may raise anything
        is_there = is_there or find_spec(name) is not None
    if is_there and version is None and top not in sys.stdlib_module_names:
        distributions = set(owners().get(top, ()))
        version = _version_of(distributions.pop()) if len(distributions) == 1 else None
    return is_there, version


def _version_of(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except (PackageNotFoundError, ValueError):
        return None
