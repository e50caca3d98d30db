"""Tools that call tools: through the executor, in threads and on the loop, and never without end."""

import asyncio
import threading
import time
import types

import pytest
from helpers import until

from onetool import ToolCall
from onetool.core.errors import ToolFailure
from onetool.sdk import ToolFailure as PublicFailure
from onetool.sdk import call_tool, get_config, get_pack, report_progress
from onetool.sdk.testing import packs


def module(name, **functions):
    made = types.ModuleType(name)
    for key, function in functions.items():
        function.__name__ = key
        function.__module__ = name
        setattr(made, key, function)
    return made


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int = 1) -> int:
    """Add two numbers, later."""
    await asyncio.sleep(0)
    return a + b


def fail():
    """Fail on purpose."""
    raise ToolFailure("closed on Mondays", reason="source_unavailable", hints=["try on Tuesday"])


maths = module("maths", add=add, add_async=add_async, fail=fail)


def calling(function):
    return module("caller", go=function)


def test_a_failed_tool_raises_with_its_message():
    assert PublicFailure is ToolFailure
    with packs(maths), pytest.raises(ToolFailure, match=r"^closed on Mondays$") as raised:
        call_tool("maths.fail")
    assert (raised.value.reason, raised.value.hints) == ("source_unavailable", ("try on Tuesday",))


def test_wrong_arguments_raise_with_the_problem():
    with packs(maths), pytest.raises(ToolFailure, match=r"a: expected a whole number"):
        call_tool("maths.add", a="one")


def test_an_unknown_tool_of_a_known_pack_offers_the_nearest():
    with packs(maths), pytest.raises(ValueError, match=r"Tool not found: maths\.ad; did you mean maths\.add"):
        call_tool("maths.ad")


def test_a_pack_proxy():
    with packs(maths):
        pack = get_pack("maths")
        assert dir(pack) == ["add", "add_async", "fail"]
        assert repr(pack) == "<pack maths: add, add_async, fail>"
        assert repr(pack.add) == "<tool maths.add(a: int, b: int = 1) -> int>"
        assert pack.add.__doc__ == "Add two numbers."
        assert pack.add(2) == pack.add(a=2, b=1) == pack.add(1, b=2) == 3
        with pytest.raises(AttributeError, match=r"no tool 'addd'; did you mean add"):
            _ = pack.addd
        with pytest.raises(TypeError, match="at most"):
            pack.add(1, 2, 3)
        with pytest.raises(TypeError, match="twice"):
            pack.add(1, a=2)


@pytest.mark.parametrize("name", ["maths.add", "maths.add_async"])
def test_from_sync_and_async_code_alike(name):
    def sync_go():
        """Go."""
        return call_tool(name, a=1, b=2)

    async def async_go():
        """Go."""
        return await call_tool(name, a=1, b=2)

    for function in (sync_go, async_go):
        with packs(calling(function), maths) as tools:
            assert tools.call("caller.go") == 3


def test_async_tools_run_on_the_loop_of_the_others():
    loops = []

    async def where():
        """Remember the loop."""
        loops.append(asyncio.get_running_loop())

    def go():
        """Call it from a thread."""
        call_tool("places.where")

    with packs(calling(go), module("places", where=where)) as tools:

        async def both():
            await tools.result_async("places.where")
            await tools.result_async("caller.go")

        asyncio.run(both())
    assert loops[0] is loops[1]


def test_cycles_are_bounded():
    def go():
        """Call myself."""
        return call_tool("caller.go")

    async def go_async():
        """Call myself, later."""
        return await call_tool("caller.go")

    for function in (go, go_async):
        with packs(calling(function)) as tools:
            error = tools.result("caller.go").error
            assert "too deep: caller.go -> caller.go" in error.message


def test_a_called_tool_ends_with_the_deadline_of_its_caller():
    from onetool.sdk import tool

    @tool(timeout=600)
    def slow():
        """Take long."""
        may_end.wait(60)

    @tool(timeout=0.3)
    def go():
        """Call it."""
        try:
            call_tool("naps.slow")
        finally:
            came_back.set()

    came_back, may_end = threading.Event(), threading.Event()
    with packs(calling(go), module("naps", slow=slow)) as tools:
        assert tools.result("caller.go").error.reason == "timeout"
        until(came_back.is_set)
        may_end.set()


def test_the_callers_allow_list_holds_for_the_tools_that_it_calls():
    def go():
        """Call another."""
        return call_tool("maths.add", a=1)

    with packs(calling(go), maths) as tools:

        async def call(allowed):
            return await tools.calls.execute(ToolCall("1", "caller.go", {}), allowed)

        assert asyncio.run(call(["caller.go", "maths.add"])).data == 2
        assert "not allowed" in asyncio.run(call(["caller.go"])).error.message


def test_more_callers_than_threads_do_not_lock_each_other_out():
    from onetool.core.threads import Threads

    def go(n: int) -> int:
        """Call another."""
        barrier.wait(20)
        return call_tool("maths.add", a=n)

    barrier = threading.Barrier(3)
    with packs(calling(go), maths) as tools:
        tools.calls._runner._threads = Threads(most=3)

        async def all_at_once():
            return await asyncio.gather(*(tools.result_async("caller.go", n=n) for n in range(3)))

        assert [result.data for result in asyncio.run(all_at_once())] == [1, 2, 3]


def test_progress_reaches_the_caller_also_from_a_called_tool():
    def count():
        """Count to three."""
        for number in range(3):
            report_progress(number + 1, 3, "counting")

    def go():
        """Call it."""
        call_tool("steps.count")

    with packs(calling(go), module("steps", count=count)) as tools:
        tools.call("caller.go")
        assert tools.progress == [(1, 3, "counting"), (2, 3, "counting"), (3, 3, "counting")]
    report_progress(1)  # nobody listens: nothing happens


def test_settings_are_those_of_the_pack_that_runs():
    def mine() -> dict:
        """My settings."""
        return dict(get_config())

    with packs(module("one", mine=mine), settings={"one": {"x": 1}, "two": {"x": 2}}) as tools:
        assert tools.call("one.mine") == {"x": 1}


def test_outside_of_a_tool_there_are_no_packs():
    with pytest.raises(ValueError, match=r"^Pack not found: maths$"):
        call_tool("maths.add", a=1)
    assert get_pack("maths") is None
    assert get_config() == {}


def test_a_method_kept_after_its_call_says_so():
    with packs(maths):
        kept = get_pack("maths").add
    with pytest.raises(RuntimeError, match="has ended"):
        kept(1)


def test_secrets_under_test_come_from_the_test_alone(monkeypatch):
    from onetool.sdk import get_secret

    monkeypatch.setenv("REAL_KEY", "from the environment")
    with packs(maths, secrets={"KEY": "k"}):
        assert (get_secret("KEY"), get_secret("REAL_KEY")) == ("k", None)


def test_an_argument_may_be_called_name_or_self():
    def greet(name: str, self: str = "me") -> str:
        """Greet."""
        return f"{name} {self}"

    with packs(module("p", greet=greet)):
        assert call_tool("p.greet", name="bob") == "bob me"
        assert get_pack("p").greet(name="bob", self="you") == "bob you"


def test_when_the_callers_time_is_up_nothing_more_is_called():
    from onetool.sdk import tool

    ran = []

    def quick():
        """Be quick."""
        ran.append(1)

    @tool(timeout=0.2)
    def late():
        """Go on after the time is up."""
        go_on.wait(60)
        for _ in range(20):
            try:
                call_tool("others.quick")
            except ToolFailure as failure:
                reasons.append(failure.reason)

    reasons, go_on = [], threading.Event()
    with packs(module("slow", late=late), module("others", quick=quick)) as tools:
        assert tools.result("slow.late").error.reason == "timeout"
        go_on.set()
        until(lambda: len(reasons) + len(ran) == 20)
    assert (ran, reasons) == ([], ["timeout"] * 20)


def test_loops_of_different_calls_do_not_get_in_each_others_way():
    from onetool.sdk import batch_execute

    async def slow(s: float) -> str:
        """Take a moment."""
        await asyncio.sleep(s)
        return "done"

    async def one(item):
        await call_tool("r.slow", s=0.01)
        await asyncio.sleep(0.2)
        return item

    def batch():
        """An async batch from sync code, which has a loop of its own."""
        return batch_execute(["a", "b"], one, as_dict=True)

    def other():
        """A call to an async tool meanwhile."""
        time.sleep(0.1)
        return call_tool("r.slow", s=0.5)

    with packs(module("r", slow=slow), module("q", batch=batch, other=other)) as tools:

        async def both():
            return await asyncio.gather(tools.result_async("q.batch"), tools.result_async("q.other"))

        first, second = asyncio.run(both())
    assert first.data == {"a": "a", "b": "b"}
    assert second.data == "done"


def test_a_pack_cannot_change_its_settings():
    def change():
        """Try to."""
        get_config()["list"].append(1)

    with packs(module("p", change=change), settings={"p": {"list": []}}) as tools:
        assert "can't be changed" in tools.result("p.change").error.message


def test_progress_carries_no_secrets():
    from onetool.sdk import get_secret

    def tell():
        """Tell too much."""
        report_progress(1, 2, f"using {get_secret('KEY')}")

    with packs(module("p", tell=tell), secrets={"KEY": "hunter2"}) as tools:
        tools.call("p.tell")
        assert tools.progress == [(1, 2, "using ***")]


def test_a_forgotten_await_is_told():
    async def go():
        """Forget to await."""
        return call_tool("maths.add", a=1)

    with packs(calling(go), maths) as tools:
        assert "await" in tools.result("caller.go").error.message
