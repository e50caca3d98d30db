"""The way of one script through the app: its catalogue, its limits from the config, and many at once."""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import CHECKPOINTS, Checkpoint, until, until_async

from onetool import App
from onetool.core.call import current_caller
from onetool.core.principal import Principal, current_principal

PACK = """
import asyncio
import threading
import time
from helpers import CHECKPOINTS
from onetool.sdk import tool
from onetool.core.context import paused_for_caller

@tool(timeout=0.1)
def hang() -> str:
    CHECKPOINTS["engine"].pause_thread()
    return "too late"

def in_thread() -> int:
    return threading.get_ident()

async def stop() -> str:
    await CHECKPOINTS["engine"].pause()
    return "went on"

async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds

def doze(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

async def ask() -> bool:
    with paused_for_caller():
        await CHECKPOINTS["answer"].pause()
    return True

def add(a: int, b: int = 1) -> int:
    return a + b

INSIDE = []

def enter() -> None:
    INSIDE.append(1)

def leave() -> int:
    INSIDE.pop()
    return len(INSIDE) + 1
"""


@pytest.fixture
def app(tmp_path):
    (tmp_path / "work.py").write_text(PACK)
    config = tmp_path / "onetool.yaml"
    config.write_text(
        "packs: [work.py]\n"
        "aliases: {plus: work.add, w: weather}\n"
        "snippets: {sum: {params: {n: {type: integer}}, body: 'work.add(a={{ n }})'}}\n"
        "tools:\n"
        "  - {name: weather, description: d, type: function, handler: w, parameters: {type: object, properties: {}},"
        " implementation: {type: mock, mock_response: {c: 21}}}\n"
        "  - {name: script, description: d, type: function, handler: s, parameters: {type: object,"
        " properties: {code: {type: string}}, required: [code]}, implementation: {type: internal, handler: run}}\n"
        "run: {timeout_s: 5, workers: 2}\n"
    )
    with App.open(config) as app:
        yield app


def test_values_prints_and_calls(app):
    result = app.run_sync("print('one'); print('two')\n[work.add(1), plus(a=2, b=3), weather()['c'], w()['c']]")
    assert (result.data, result.printed, result.meta["calls"]) == ([2, 5, 21, 21], "one\ntwo\n", 4)
    assert result.ok
    assert result.error is None


def test_a_snippet_is_the_whole_text(app):
    assert app.run_sync("$sum n=4").data == 5
    assert "n" in app.run_sync("$sum").error.message
    assert app.run_sync("x = '$sum n=4'\nx").data == "$sum n=4"


def test_an_alias_inside_a_string_stays_a_string(app):
    assert app.run_sync("'plus(1)'").data == "plus(1)"
    assert app.run_sync("def plus(a):\n    return 'mine'\nplus(1)").data == "mine"


def test_the_code_s_own_loop_works_from_a_loop(app):
    async def both():
        return await asyncio.gather(app.run("work.nap(0.1)"), app.run("work.doze(0.1)"))

    assert [result.data for result in asyncio.run(both())] == [0.1, 0.1]


def test_no_more_run_at_a_time_than_there_are_workers(app):
    async def many():
        return await asyncio.gather(*[app.run(f"work.enter()\nwork.nap(0.05)\n[work.leave(), {n}]") for n in range(6)])

    results = [result.data for result in asyncio.run(many())]
    assert [number for _, number in results] == list(range(6))
    assert max(inside for inside, _ in results) == 2


def test_a_tool_that_runs_code_takes_no_turn_of_its_own(app):
    """Two workers, and two runs that each want another: waiting for a turn would be waiting for ever."""

    async def nested():
        code = "script(code='work.nap(0.2)\\nscript(code=\"40 + 2\")')"
        return await asyncio.gather(app.run(code), app.run(code))

    assert [result.data for result in asyncio.run(nested())] == [42, 42]


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("callers", [("ada",), ("ada", "bob"), ("ada", "bob", "cy")])
def test_runs_of_three_levels_end_with_two_slots(app, callers):
    """One slot of each level is for callers without a run: nobody waits for itself."""
    innermost = "import asyncio\nawait asyncio.gather(*[script(code='work.nap(0.01)') for _ in range(2)])\n1"
    middle = f"import asyncio\nawait asyncio.gather(*[script(code={innermost!r}) for _ in range(2)])"

    async def one(caller):
        current_principal.set(Principal(name=caller, owner=caller))
        return await app.run(middle)

    async def nested():
        return await asyncio.gather(*[asyncio.create_task(one(caller)) for caller in callers * 2])

    assert [result.data for result in asyncio.run(nested())] == [[1, 1]] * 2 * len(callers)


@pytest.fixture
def answer(monkeypatch):
    """Answers all questions of `work.ask` at once."""
    monkeypatch.setitem(CHECKPOINTS, "answer", checkpoint := Checkpoint())
    return checkpoint


async def run_as(caller, app, code, **options):
    current_principal.set(Principal(name=caller, owner=caller))
    current_caller.set(object())  # somebody who can be asked
    return await app.run(code, **options)


@pytest.mark.attack("other callers")
def test_runs_that_come_back_from_a_person_stay_within_the_slots(app, answer):
    """All of them got in while they waited, and went on at once when they were answered."""
    begun = []
    code = "print('asks')\nwork.ask()\nwork.enter()\nwork.nap(0.05)\nwork.leave()"

    async def main():
        runs = [asyncio.create_task(run_as("ada", app, code, live=lambda *_: begun.append(1))) for _ in range(4)]
        await until_async(lambda: len(begun) == 4)
        answer.open()
        quick = [(await asyncio.create_task(run_as("bob", app, "1 + 1"))).data for _ in range(3)]
        return quick, [result.data for result in await asyncio.gather(*runs)]

    quick, at_once = asyncio.run(main())
    assert quick == [2] * 3
    assert max(at_once) <= 2


@pytest.mark.attack("other callers")
def test_code_that_goes_on_beside_a_question_needs_a_slot(app, answer):
    burning = []
    code = (
        "import asyncio\nasync def burn():\n    await work.nap(0.01)\n    print('burning')\n    while True: pass\n"
        "await asyncio.gather(work.ask(), burn())"
    )

    async def main():
        runs = [asyncio.create_task(run_as("ada", app, code, live=lambda *_: burning.append(1))) for _ in range(4)]
        await until_async(lambda: len(burning) == 2)
        quick = [(await asyncio.create_task(run_as("bob", app, "1 + 1"))).data for _ in range(3)]
        count = len(burning)
        for one in runs:
            one.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        return quick, count

    assert asyncio.run(main()) == ([2] * 3, 2)


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("callers", [("ada",), ("ada", "bob")])
def test_runs_of_three_levels_come_back_from_a_person(app, answer, callers):
    innermost = "script(code='work.ask()')\n1"
    middle = f"import asyncio\nawait asyncio.gather(*[script(code={innermost!r}) for _ in range(2)])"

    async def main():
        runs = [asyncio.create_task(run_as(caller, app, middle)) for caller in callers * 2]
        await answer.arrival()
        answer.open()
        return [result.data for result in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == [[1, 1]] * 2 * len(callers)


def test_a_run_that_is_cancelled_while_it_comes_back_takes_no_slot(app, answer):
    begun = []

    async def main():
        code = "print('asks')\nwork.ask()\nwhile True: pass"
        runs = [asyncio.create_task(run_as("ada", app, code, live=lambda *_: begun.append(1))) for _ in range(3)]
        await until_async(lambda: len(begun) == 3)
        answer.open()
        slots = app.runtime.engine._slots_for(None)
        await until_async(lambda: slots.usage() == (2, 1))
        for one in runs:
            one.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        return slots.usage()

    assert asyncio.run(main()) == (0, 0)


def test_the_wait_for_the_slot_does_not_count(tmp_path, answer):
    (tmp_path / "work.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [work.py]\nrun: {timeout_s: 2, workers: 2}\n")
    code = "work.ask()\nwork.nap(1.2)"

    async def main():
        async with App.open(tmp_path / "onetool.yaml") as app:
            runs = [asyncio.create_task(run_as("ada", app, code)) for _ in range(3)]
            await answer.arrival()
            answer.open()
            return [result.data for result in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == [1.2] * 3


def test_code_that_runs_itself_without_end_is_stopped(app):
    nested = "script(code='1')"
    for _ in range(12):
        nested = f"script(code={nested!r})"
    assert "too deep" in app.run_sync(nested).error.message


def test_an_allow_list_holds_for_everything_in_a_run(app):
    assert app.run_sync("work.add(1)", allowed=["work.add"]).data == 2
    assert "not allowed" in app.run_sync("work.nap(0)", allowed=["work.add"]).error.message
    hidden = "ot.call('work.' + 'nap', {'seconds': 0})"
    assert app.run_sync(hidden, allowed=["work.add"]).error.reason == "denied"
    inner = app.run_sync("script(code=\"ot.call('work.' + 'nap', {'seconds': 0})\")", allowed=["script", "work.add"])
    assert not inner.ok


@pytest.fixture
def there(monkeypatch):
    """Where `work.stop` waits."""
    there = Checkpoint()
    monkeypatch.setitem(CHECKPOINTS, "engine", there)
    return there


HANGS = """
late = []
for _ in range(3):
    try:
        work.hang()
    except TimeoutError as error:
        late.append(str(error))
[late, work.in_thread() != first, work.add(1)]
"""


def test_a_tool_that_blocks_keeps_its_thread_and_the_run_goes_on_in_another(app, there):
    threads = threading.active_count()
    result = app.run_sync(f"first = work.in_thread()\n{HANGS}")
    assert result.data == [["work.hang did not respond within 0.1 s"] * 3, True, 2], result
    assert result.meta["calls"] == 6
    there.open()  # what the tool returns now is for nobody
    until(lambda: threading.active_count() <= threads + 3)  # the loop, its executor, and the thread of the run
    assert app.run_sync("work.add(2)").data == 3


def test_a_run_that_is_cancelled_while_its_tool_blocks_gives_its_worker_back(app, there):
    async def main():
        running = asyncio.create_task(app.run("work.hang()"))
        await there.arrival()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until_async(lambda: not app.runtime.engine.sandbox._busy)

    asyncio.run(main())
    there.open()


def test_a_reload_in_between_changes_nothing_for_a_run_under_way(app, there):
    async def reloaded():
        running = asyncio.create_task(app.run("work.stop()\nwork.add(1)"))
        await there.arrival()
        app.config.packs[0].write_text("def other() -> int:\n    return 1\n")
        app.reload()
        there.open()
        return await running, await app.run("work.other()"), await app.run("work.add(1)")

    before, after, gone = asyncio.run(reloaded())
    assert (before.data, after.data, gone.ok) == (2, 1, False)


@pytest.fixture
def with_secret(tmp_path):
    config = tmp_path / "onetool.yaml"
    config.write_text("secrets: secrets.yaml\n")
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("KEY: hush-hush-hush\n")
    secrets.chmod(0o600)
    with App.open(config) as app:
        yield app


def leak():
    return "my key is hush-hush-hush"


@pytest.mark.parametrize(
    "code",
    ["leak()", "print(leak())", "raise ValueError(leak())", "''.join(list(leak()))", "print(leak()[-8:])"],
)
def test_a_secret_that_a_tool_gives_is_nowhere_in_what_comes_of_a_run(with_secret, code):
    from onetool import ToolSpec

    with_secret.catalog.registry.register(ToolSpec(name="leak", description="d", handler=leak))
    heard = []
    result = asyncio.run(with_secret.run(code, live=heard.append))
    told = f"{result} {heard} {with_secret.reply(result).text}"
    assert "***" in told
    assert "sh-hush" not in told


def test_a_run_under_way_masks_what_it_masked_when_it_began(with_secret, there):
    from onetool import ToolSpec

    for name, handler in (("leak", leak), ("stop", there.pause)):
        with_secret.catalog.registry.register(ToolSpec(name=name, description="d", handler=handler))

    async def reloaded():
        running = asyncio.create_task(with_secret.run("stop()\nprint(leak())"))
        await there.arrival()
        with_secret.config.secrets.file.write_text("KEY: another-one\n")
        with_secret.reload()
        there.open()
        return await running

    assert asyncio.run(reloaded()).printed == "my key is ***\n"


def test_an_allow_list_is_never_widened(app):
    async def inner():
        return await app.run("work.add(1)", allowed=["work.add"])

    from onetool import ToolCall, ToolSpec

    app.catalog.registry.register(ToolSpec(name="sneaky", description="d", handler=inner))
    result = asyncio.run(app.call(ToolCall("1", "sneaky"), allowed=["sneaky"]))
    assert result.data["error"]["message"] == "line 1: work.add is not allowed here"
    with pytest.raises(TypeError, match="a list of names"):
        app.run_sync("work.add(1)", allowed="work.add")


def test_runs_inside_of_runs_are_bounded_too(app):
    async def nested():
        code = "script(code='work.enter()\\nwork.nap(0.1)\\nwork.leave()')"
        gathered = f"import asyncio\nawait asyncio.gather(*[{code} for _ in range(6)])"
        return await asyncio.gather(app.run(gathered), app.run(gathered))

    assert max(inside for result in asyncio.run(nested()) for inside in result.data) == 2


def test_closing_wakes_whoever_waits_for_a_run(app, there):
    from concurrent.futures import CancelledError, ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.run_sync, "work.stop()")
        until(there.reached.is_set)
        app.close()
        with pytest.raises(CancelledError):
            waiting.result(timeout=5)


def test_closing_does_not_wait_for_a_tool_that_heeds_nothing(app):
    from concurrent.futures import CancelledError, ThreadPoolExecutor

    from onetool import ToolSpec

    async def stubborn():
        began.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)

    began, may_end = threading.Event(), threading.Event()
    app.catalog.registry.register(ToolSpec(name="stubborn", description="d", handler=stubborn))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.run_sync, "stubborn()")
        until(began.is_set)
        app.close()
        may_end.set()
        with pytest.raises(CancelledError):
            waiting.result(timeout=60)


def test_a_reload_does_not_disturb_whoever_waits_for_a_run(app, there):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.run_sync, "work.stop()")
        until(there.reached.is_set)
        app.reload()
        there.open()
        assert waiting.result(timeout=20).data == "went on"


def test_waiting_for_the_loop_that_one_runs_on_is_an_error_and_no_deadlock(app):
    from onetool import ToolSpec

    async def stuck():
        return app.run_sync("1").data

    app.catalog.registry.register(ToolSpec(name="stuck", description="d", handler=stuck))
    assert "await the async method" in app.run_sync("stuck()").error.message


def test_a_listener_that_breaks_is_told_so_itself(app):
    def gone(_text):
        raise BrokenPipeError("gone")

    with pytest.raises(BrokenPipeError):
        asyncio.run(app.run("print(1)\nwork.nap(3)\n2", live=gone))
    assert app.run_sync("1 + 1").data == 2


def test_what_a_tool_gives_and_the_sandbox_can_not_say_is_mended(app):
    from onetool import ToolSpec

    app.catalog.registry.register(ToolSpec(name="odd", description="d", handler=lambda: ["\ud800", {"a": "b"}]))
    assert app.run_sync("odd()").data == ["?", {"a": "b"}]


def test_errors_that_only_look_like_limits_are_the_code_s_own(app):
    for code in (
        "raise MemoryError('mine')",
        "raise TimeoutError('time limit exceeded')",
        "raise RuntimeError('suspension limit')",
    ):
        error = app.run_sync(code).error
        assert error.reason is None, error


def test_the_sync_face_works_in_a_notebook_that_has_a_loop(app):
    """A notebook's cell is async already; the sync face must not need the loop that it runs on."""

    async def cell():
        return app.run_sync("work.nap(0.01)").data

    assert asyncio.run(cell()) == 0.01


def test_the_type_checker_is_asked_about_our_tools_only(tmp_path):
    (tmp_path / "work.py").write_text(PACK)
    config = tmp_path / "onetool.yaml"
    config.write_text("packs: [work.py]\nrun: {typecheck: true}\n")
    with App.open(config) as app:
        wrong = app.run_sync("n = 'x'\nwork.nap(0)\nwork.add(a=n)")
        assert wrong.error.reason == "check"
        assert "line 3: work.add" in wrong.error.message
        assert wrong.meta["calls"] == 0
        # What it says of other code does not count.
        assert app.run_sync("import re\nre.search('b', 'abc').group(0) + str(work.add(len('ab')))").data == "b3"
        assert app.run_sync("xs = [1]\nxs.append('a')\nlen(xs) + work.add(1)").data == 4
        maybe = "d = {'a': 1}\nwork.add(a=d.get('a'))"
        assert app.run_sync(maybe).data == 2
        assert app.run_sync("import statistics\nstatistics.mean([work.add(1)])").data == 2
        # What it refuses and we run all the same keeps its lines, and its calls side by side.
        odd = "import asyncio, statistics\nx: int = 'a'\n"
        assert app.run_sync(f"{odd}await asyncio.gather(work.nap(0), work.nap(0))").data == [0, 0]
        assert app.run_sync(f"{odd}1 / 0").error.hints == ("line 3: 1 / 0",)


def test_who_finds_no_free_worker_in_time_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr("onetool.script.engine.QUEUE_SECONDS", 0.2)
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\nrun: {workers: 1}\n")

    async def main():
        async with App.open(tmp_path / "onetool.yaml") as app:
            async with app.runtime.engine._slots_for(None).slot():  # somebody has it, and keeps it
                result = await app.run("1 + 1")
            assert (await app.run("1 + 1")).data == 2
            return result

    error = asyncio.run(main()).error
    assert error.reason == "busy"
    assert "no worker was free for 0.2 s: 1 runs are in progress" in error.message


def test_a_reload_while_code_runs_leaves_no_worker_behind(tmp_path):
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")

    def children():
        return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    async def main():
        async with App.open(tmp_path / "onetool.yaml") as app:
            await app.run("1")
            before = children()
            for _ in range(5):
                runs = [asyncio.ensure_future(app.run("import time\ntime.sleep(0.05)\n1")) for _ in range(3)]
                await asyncio.sleep(0.01)
                await asyncio.to_thread(app.reload)
                assert [result.data for result in await asyncio.gather(*runs)] == [1, 1, 1]
            await app.run("1")
            await until_async(lambda: children() <= before + 2)

    asyncio.run(main())
