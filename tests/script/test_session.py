"""A session goes on where the last line left off, until a limit ends its worker."""

import asyncio

import pytest

from onetool.script.names import completions


@pytest.fixture
def session(scripts):
    scripts.tool("shop.price", lambda name: f"{name}: 4", "name", name={"type": "string"}, count={"type": "integer"})
    scripts.tool("shop.find", lambda: ["tea"])
    session = scripts.app.runtime.engine.session(scripts.app.catalog.registry.snapshot())
    yield session
    session.close()


def run(session, code):
    return asyncio.run(session.run(code))


def test_names_stay(session):
    assert run(session, "x = 2\ndef double(n):\n    return n * 2").ok
    assert run(session, "double(x)").data == 4
    assert run(session, "import statistics").ok
    assert run(session, "statistics.mean([x, 4])").data == 3
    assert run(session, "f = shop.price").ok
    assert run(session, "f(name='tea')").data == "tea: 4"
    assert session.known >= {"x", "double", "statistics", "f"}


def test_names_stay_also_of_code_that_was_run_before_elsewhere(session, scripts):
    assert scripts.value("def double(n):\n    return n * 2\ndouble(1)") == 2
    run(session, "def double(n):\n    return n * 2\ndouble(1)")
    assert run(session, "double(2)").data == 4


def test_an_error_loses_nothing(session):
    run(session, "x = 2")
    assert not run(session, "1 / 0").ok
    assert not run(session, "shop.prize()").ok
    assert run(session, "x").data == 2


def test_functions_of_earlier_lines_still_run_tools_side_by_side(session):
    run(session, "import asyncio\nasync def one(name):\n    return await shop.price(name=name)")
    assert run(session, "await asyncio.gather(one('a'), one('b'))").data == ["a: 4", "b: 4"]


def test_a_limit_starts_it_anew(session):
    run(session, "x = 2")
    assert run(session, "'x' * 10**9").error.reason == "memory"
    assert session.is_fresh
    assert "not defined" in run(session, "x").error.message


def test_completion(session, scripts):
    names = scripts.app.runtime.engine.names(scripts.app.catalog.registry.snapshot())
    run(session, "shopping = 1")
    assert completions("sho", names, session.known) == ["shop", "shopping"]
    assert completions("y = shop.p", names) == ["shop.price("]
    assert completions("shop.", names) == ["shop.find(", "shop.price("]
    assert completions("shop.price(", names)[:2] == ["name=", "count="]
    assert completions("shop.price(name='x', c", names) == ["count="]
    assert completions("shop.price(name='x', count=1, ", names)[0] != "count="
    assert completions("prin", names) == ["print"]
    assert completions("nope.x", names) == []


def test_what_can_not_cross_loses_nothing(session):
    run(session, "x = 2")
    assert not run(session, "shop.price(name=str, count=10**5000)").ok
    assert not run(session, "10**5000").ok
    assert not run(session, "['x' * 1000] * 2000").ok  # a result that is too large
    assert run(session, "x").data == 2


def test_a_tool_s_failure_that_sounds_like_a_limit_loses_nothing(session, scripts):
    def busy():
        raise RuntimeError("rate limit exceeded")

    scripts.tool("slow.down", busy)
    session = scripts.app.runtime.engine.session(scripts.app.catalog.registry.snapshot())
    run(session, "x = 2")
    assert "rate limit exceeded" in run(session, "slow.down()").error.message
    assert run(session, "x").data == 2
    session.close()


def test_calls_are_counted_for_each_line_and_not_for_the_session(session):
    for _ in range(3):
        assert run(session, "len([shop.find() for _ in range(900)])").data == 900
