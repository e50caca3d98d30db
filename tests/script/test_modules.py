"""Modules that we bring: made once, and in nobody's way."""

import pytest
from pydantic_monty import Monty, MontyRuntimeError

from onetool.script import modules
from onetool.script.modules import AVAILABLE, prelude, public_names


@pytest.fixture(scope="module")
def pool():
    with Monty() as pool:
        yield pool


def test_what_is_available_is_what_the_folder_holds():
    held = {path.stem.replace("urllib_", "urllib.") for path in modules._FOLDER.glob("*.py")}
    assert held | {"urllib"} == AVAILABLE


@pytest.mark.parametrize("name", sorted(AVAILABLE))
def test_each_module_alone(pool, name):
    home = modules.variable(name)
    with pool.checkout() as session:
        session.feed_run(prelude([name]))
        assert session.feed_run(f"repr({home})") == f"<module {name!r}>"
        assert session.feed_run(f"[hasattr({home}, name) for name in {list(public_names(name))!r}]")
        known = public_names(name)
        assert known
        assert session.feed_run(f"[name for name in {known!r} if not hasattr({home}, name)]") == []


def test_nothing_leaks(pool):
    with pool.checkout() as session:
        session.feed_run(prelude(AVAILABLE))
        for name in ("mean", "math", "re", "_ratios", "statistics", "string", "Module", "__onetool_module"):
            with pytest.raises(MontyRuntimeError, match="is not defined"):
                session.feed_run(name)


def test_public_names():
    assert {"mean", "StatisticsError", "LinearRegression"} <= set(public_names("statistics"))
    assert public_names("urllib") == ("parse",)
    for name in AVAILABLE:
        assert not {one for one in public_names(name) if one.startswith("_")} | {"math", "re"} & set(public_names(name))


def test_the_same_prelude_for_one_module_by_any_of_its_names():
    assert prelude(["urllib"]) == prelude(["urllib.parse"]) == prelude(["urllib.parse", "urllib"])
    assert prelude([]) == ""
    assert prelude(["uuid", "string"]) == prelude(["string", "uuid", "uuid"])
