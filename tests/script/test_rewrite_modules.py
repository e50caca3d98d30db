"""Modules that we bring: made once, and in nobody's way."""

import pytest
from helpers import each, sandboxed

from onetool.sandbox import CodeError
from onetool.sandbox.messages import MONTY_VERSION
from onetool.script import rewrite
from onetool.script.rewrite import AVAILABLE, NATIVE, prelude, public_names


def test_what_is_available_is_what_the_folder_holds():
    held = {path.stem.replace("urllib_", "urllib.") for path in rewrite._FOLDER.glob("*.py")}
    assert held | {"urllib"} == AVAILABLE


@each("name", sorted(AVAILABLE))
def test_the_sandbox_itself_lacks_it(name):
    """It asks us for it. One that a newer sandbox has goes into NATIVE: then ours is skipped."""
    with sandboxed() as run, pytest.raises(AttributeError, match="OsCall"):
        run(f"import {name}")


@each("name", sorted(NATIVE))
def test_the_sandbox_itself_has_it(name):
    with sandboxed() as run:
        run(f"import {name}")


def test_the_folder_says_which_sandbox_it_is_for():
    assert f"Monty {MONTY_VERSION}" in (rewrite._FOLDER / "README.md").read_text()


@each("name", sorted(AVAILABLE))
def test_each_module_alone(name):
    home = rewrite.module_variable(name)
    with sandboxed() as run:
        run(prelude([name]))
        assert run(f"repr({home})") == f"<module {name!r}>"
        assert run(f"[hasattr({home}, name) for name in {list(public_names(name))!r}]")
        known = public_names(name)
        assert known
        assert run(f"[name for name in {known!r} if not hasattr({home}, name)]") == []


def test_nothing_leaks():
    with sandboxed() as run:
        run(prelude(AVAILABLE))
        for name in ("mean", "math", "re", "_ratios", "statistics", "string", "Module", "__onetool_module"):
            with pytest.raises(CodeError, match="is not defined"):
                run(name)


def test_public_names():
    assert {"mean", "StatisticsError", "LinearRegression"} <= set(public_names("statistics"))
    assert public_names("urllib") == ("parse",)
    for name in AVAILABLE:
        assert not {one for one in public_names(name) if one.startswith("_")} | {"math", "re"} & set(public_names(name))


def test_the_same_prelude_for_one_module_by_any_of_its_names():
    assert prelude(["urllib"]) == prelude(["urllib.parse"]) == prelude(["urllib.parse", "urllib"])
    assert prelude([]) == ""
    assert prelude(["heapq", "string"]) == prelude(["string", "heapq", "heapq"])
