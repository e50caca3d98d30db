"""Bundles in an app: their tools in the registry, in step with what others do to the files."""

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from types import SimpleNamespace

import pytest
from helpers import BUILT_IN_TOOLS, Checkpoint, until
from interfaces.http.matrix import ADDRESS
from upstream import Reply, Upstream

from onetool import App, ToolCall
from onetool.app.bundles import FRESH, StorePoller
from onetool.app.describe import run_tool
from onetool.core.errors import ToolFailure
from onetool.interfaces.http.serve import server_facts
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import built_in_id
from onetool.sources.bundles.named import BundleTools
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.queries import ListQuery

MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
ECHO = {"type": "python", "argSchema": MESSAGE, "pythonImpl": {"func": "tools.echo"}}


FLAKY = '''
from onetool.sdk import tool

tries = []

@tool(retries=2)
def third() -> int:
    """Succeed at the third try."""
    tries.append(1)
    if len(tries) < 3:
        raise ConnectionError("not yet")
    return len(tries)
'''


def script(code, **properties):
    schema = {"type": "object", "properties": properties}
    return {"type": "script", "argSchema": schema, "scriptImpl": {"code": code}}


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


def bundle(app, slug="mine", **tools):
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": slug})
    for name, tool in tools.items():
        app.bundles.put_tool(id, name.replace("_", "-"), "1", tool)
    return id


def call(app, name, /, allowed=None, **args):
    return asyncio.run(app.call(ToolCall("1", name, args, "test"), allowed))


def names(app, pack="mine"):
    return [spec.name for spec in app.tools() if spec.pack == pack]


def test_what_servers_count_and_name(app):
    id = bundle(app, a=script("1"), b_c=script("2"), off=script("3"), echo=ECHO)
    app.bundles.patch_tool(id, "off", "1", {"isEnabled": False})
    closed = bundle(app, "closed", a=script("1"))
    app.bundles.patch_bundle(closed, {"isEnabled": False})
    with App.open(app.config.path) as new:
        counted, packs, texts = new.catalog.count(), new.catalog.packs(), new.catalog.texts()
        assert server_facts(new, ADDRESS, None).tools == f"{counted} tools"
        assert "mine" in run_tool(new.catalog, new.config, None)["description"]
        assert counted == len(new.tools())
        assert packs == list(dict.fromkeys(spec.pack for spec in new.tools()))
        assert "closed" not in packs
        assert new.catalog.texts() == texts
        new.bundles.patch_tool(id, "a", "1", {"isEnabled": False})
        assert new.catalog.texts() != texts
        assert "mine" not in run_tool(new.catalog, new.config, ["mine.a@1"])["description"]  # `mine.a` is not allowed


def test_an_app_without_bundles_writes_nothing_and_loads_nothing(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    code = """
import sys
from onetool.app import App
with App.open("onetool.yaml") as app:
    app.tools()
heavy = ("sqlite3", "onetool.sources.bundles.", "onetool.http")
print([name for name in sys.modules if name.startswith(heavy) and not name.endswith(".bundles.errors")])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert [file.name for file in tmp_path.iterdir()] == ["onetool.yaml"]


def test_reading_an_empty_store_writes_nothing(app, tmp_path):
    assert [one["slug"] for one in app.bundles.bundles()[0] if not one["isBuiltIn"]] == []
    assert [file.name for file in tmp_path.iterdir()] == ["onetool.yaml"]


def test_a_tool_is_there_when_it_was_put_and_gone_when_it_was_deleted(app):
    id = bundle(app, say_it=ECHO)
    assert names(app) == ["mine.say_it"]
    assert app.info("mine.say_it")["inputSchema"] == MESSAGE
    assert [spec.name for spec, _ in app.search("mine say it", 1)] == ["mine.say_it"]
    app.bundles.delete_tool(id, "say-it", "1")
    assert names(app) == []
    assert call(app, "mine.say_it", message="x").error.code == "tool_not_found"


def test_what_another_process_puts_is_seen(app, tmp_path):
    assert names(app) == []
    code = f"""
from onetool.app import App
with App.open("onetool.yaml") as app:
    app.bundles.put_bundle({new_id(time.time())!r}, {{"slug": "theirs"}})
"""
    bundle(app)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    until(lambda: not app.tools() or any(one["slug"] == "theirs" for one in app.bundles.bundles()[0]))
    with App.open(tmp_path / "onetool.yaml") as other:
        ids = {one["slug"]: one["id"] for one in other.bundles.bundles()[0]}
        other.bundles.put_tool(ids["theirs"], "say", "1", ECHO)
        until(lambda: names(app, "theirs") == ["theirs.say"])


def test_the_first_bundle_that_another_puts_is_there_at_its_next_call(app, tmp_path):
    """A worker of several has no store yet when the first bundle is put into another one."""
    assert call(app, "mine.echo", message="a").error.code == "tool_not_found"
    with App.open(tmp_path / "onetool.yaml") as other:
        bundle(other, echo=ECHO)
    time.sleep(FRESH)
    assert call(app, "mine.echo", message="a").data == "a"
    assert names(app) == ["mine.echo"]


def test_a_refresh_at_once_finds_the_first_bundle_of_another(app, tmp_path, monkeypatch):
    monkeypatch.setattr("onetool.app.bundles.FRESH", 60.0)
    assert call(app, "mine.echo", message="a").error.code == "tool_not_found"
    with App.open(tmp_path / "onetool.yaml") as other:
        bundle(other, echo=ECHO)
    asyncio.run(app.catalog.refresh(at_once=True))
    assert "mine.echo" in app.catalog.registry


def test_what_was_closed_is_not_opened_anew_by_a_call_under_way(app):
    bundle(app, echo=ECHO)
    app.close()
    app.catalog.refresh_sync()
    assert app._bundles.is_unchanged(at_once=True)
    assert app._bundles._service is None


SECOND = ToolCall("1", "mine.second", {"message": "a"})
WAITING = {
    "at once": lambda app: app.catalog.refresh(at_once=True),
    "in step": lambda app: app.bundles.keep_in_step(),
    "call": lambda app: app.call(SECOND),
    "run": lambda app: app.run("mine.second(message='a')"),
}


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
@pytest.mark.parametrize("reload", [lambda app: app.catalog.refresh_sync(), App.reload], ids=["refresh", "reload"])
def test_a_refresh_waits_for_another_threads_reload(reload, wait, app, monkeypatch):
    """Between reading the bundles and listing their tools, the bundles count as unchanged."""
    id = bundle(app, echo=ECHO)
    call(app, "mine.echo", message="a")
    app.bundles.put_tool(id, "second", "1", ECHO)
    read, has_read, goes_on = app._bundles.add_bundles, Event(), Event()

    def add_bundles(*args):
        found = read(*args)
        has_read.set()
        assert goes_on.wait(60)
        return found

    monkeypatch.setattr(app._bundles, "add_bundles", add_bundles)
    with ThreadPoolExecutor(2) as threads:
        reloaded = threads.submit(reload, app)
        assert has_read.wait(60)
        assert app._bundles.is_unchanged(at_once=True)
        refresh = threads.submit(asyncio.run, wait(app))
        time.sleep(0.05)
        assert not refresh.done()
        goes_on.set()
        result = refresh.result(60)
        reloaded.result(60)
    assert getattr(result, "error", None) is None
    assert "mine.second" in app.catalog.registry


def test_without_a_version_the_enabled_one_is_meant_that_was_modified_last(app):
    id = bundle(app, say=ECHO)
    app.bundles.put_tool(id, "say", "2", ECHO | {"description": "the second"})
    assert app.info("mine.say")["description"] == "the second"
    assert call(app, "mine.say@1", message="one").data == "one"
    app.bundles.patch_tool(id, "say", "2", {"isEnabled": False})
    assert app.info("mine.say")["description"] != "the second"
    assert call(app, "mine.say@2", message="x").error.reason == "denied"
    assert names(app) == ["mine.say"], "versions are in no list"
    for wrong in ("mine.say@3", "mine.other@1", "mine@1", "@", "mine.say@"):
        assert call(app, wrong, message="x").error.code == "tool_not_found", wrong


def test_an_allow_list_names_versions_by_themselves(app):
    bundle(app, say=ECHO)
    assert call(app, "mine.say", allowed=["mine.say", "tools.echo"], message="x").ok
    assert call(app, "mine.say@1", allowed=["mine.say", "tools.echo"], message="x").error.code == "tool_not_found"
    assert call(app, "mine.say@1", allowed=["mine.say@1", "tools.echo"], message="x").ok


def test_two_bundles_with_one_slug_and_a_bundle_named_like_a_pack(app):
    first, second, third = bundle(app, say=ECHO), bundle(app, say=ECHO, more=ECHO), bundle(app, "fs", mine=ECHO)
    assert names(app) == ["mine.say"]
    shadowed = [str(one) for one in app.mistakes if "shadowed" in str(one)]
    assert len(shadowed) == 2
    assert second in shadowed[0] + shadowed[1]
    assert third in shadowed[0] + shadowed[1]
    for id in (first, second):
        assert asyncio.run(app.bundles.invoke(id, "say", "1", {"message": "hi"})).data == "hi"
    app.bundles.delete_tool(first, "say", "1")
    app.bundles.delete_bundle(first)
    assert names(app) == ["mine.say", "mine.more"]


def test_a_built_in_pack_that_is_switched_off_is_off_everywhere(app):
    app.bundles.patch_bundle(built_in_id("time"), {"isEnabled": False})
    assert call(app, "time.now").error.reason == "denied"
    assert asyncio.run(app.run("tools.echo(message=str(time.now()))")).ok is False
    assert "time.now" not in [spec.name for spec in app.tools()]
    app.bundles.patch_tool(built_in_id("tools"), "echo", "1", {"isEnabled": False})
    assert call(app, "tools.echo", message="x").error.reason == "denied"
    app.bundles.patch_bundle(built_in_id("time"), {"isEnabled": True})
    assert call(app, "time.now").ok


def test_what_is_switched_off_while_tools_are_listed_is_off_afterwards(app, monkeypatch):
    """The list is made of what was read before, and is not taken for current by that."""
    bundle(app)
    read, pack = app.bundles.store.settings, built_in_id("time")

    def read_and_switch():
        settings = read()
        monkeypatch.setattr(app.bundles.store, "settings", read)
        app.bundles.patch_bundle(pack, {"isEnabled": False})
        return settings

    monkeypatch.setattr(app.bundles.store, "settings", read_and_switch)
    app.catalog._list()  # as when a server tells of its tools
    assert names(app, "time") == []


def test_a_function_that_is_switched_off_takes_its_tools_with_it(app):
    id = bundle(app, say=ECHO)
    app.bundles.patch_tool(built_in_id("tools"), "echo", "1", {"isEnabled": False})
    assert call(app, "mine.say", message="x").error.reason == "denied"
    assert "tools.echo" in app.bundles.get_tool(id, "say", "1")[0]["disabledReason"]


def test_a_script_runs_with_its_arguments_as_variables(app):
    code = "parts = [tools.echo(message=word) for word in words]\n{'joined': sep.join(parts), 'rest': rest}"
    bundle(app, join=script(code, words={"type": "array"}, sep={"type": "string", "default": "-"}, rest={}))
    assert call(app, "mine.join", words=["a", "b"]).data == {"joined": "a-b", "rest": None}
    assert asyncio.run(app.run('mine.join(words=["x"], rest=1)["rest"]')).data == 1
    denied = call(app, "mine.join", allowed=["mine.join"], words=["a"])
    assert "tools.echo" in denied.error.message, "what a script calls has to be allowed, too"


def test_a_script_that_calls_itself_ends(app):
    id = bundle(app)
    app.bundles.put_tool(id, "again", "1", script("1"))
    app.bundles.put_tool(id, "again", "2", script("mine.again()"))
    failed = call(app, "mine.again")
    assert failed.ok is False


@pytest.mark.parametrize(
    ("tool", "pointer"),
    [
        (script("tools.eco(message='x')"), "/scriptImpl/code"),
        (script("x = ("), "/scriptImpl/code"),
        (script("1", **{"not a name": {}}), "/argSchema/properties"),
        (script("1", **{"class": {}}), "/argSchema/properties"),
        (ECHO | {"pythonImpl": {"func": "tools.ecko"}}, "/pythonImpl/func"),
        (ECHO | {"argSchema": {"type": "object", "properties": {"massage": {}}}}, "/argSchema/properties"),
        (ECHO | {"argSchema": {"type": "object", "properties": {"message": {}}}}, "/argSchema/required"),
        (ECHO | {"argSchema": {"type": "array"}}, "/argSchema/type"),
        (ECHO | {"argSchema": {"$ref": "http://127.0.0.1:1/x"}}, "/argSchema"),
        (ECHO | {"outputSchema": {"type": "strin"}}, "/outputSchema"),
        (ECHO | {"limits": {"maxCallsPerMinute": 0}}, "/limits/maxCallsPerMinute"),
        (ECHO | {"scriptImpl": {"code": "1"}}, "/scriptImpl"),
        (ECHO | {"tags": ["a", ""]}, "/tags/1"),
        (ECHO | {"type": "httb"}, "/type"),
        (ECHO | {"pythonImpl": {"fanc": "x"}}, "/pythonImpl/fanc"),
        ({"type": "http", "httpImpl": {"request": {"urlTemplate": "http://a/${x"}}}, "/httpImpl/request/urlTemplate"),
        ([], ""),
    ],
)
def test_what_could_never_run_is_refused_with_its_place(app, tool, pointer):
    id = bundle(app)
    with pytest.raises(InvalidError) as caught:
        app.bundles.put_tool(id, "wrong", "1", tool)
    assert caught.value.pointer == pointer
    assert names(app) == []


def test_defaults_of_arguments_are_sent(tmp_path):
    with Upstream(Reply(headers={"Content-Type": "application/json"}, body=b"1")) as upstream:
        hosts = [{"host": upstream.netloc, "allowPrivate": True}]
        (tmp_path / "onetool.yaml").write_text(json.dumps({"allowedHosts": hosts}))
        with App.open(tmp_path / "onetool.yaml") as app:
            schema = {"type": "object", "properties": {"a": {"default": 3}, "b": {"type": "string"}}}
            request = {"urlTemplate": f"{upstream.url}/x", "query": {"a": "${a}", "b": "${b}"}}
            bundle(app, get={"type": "http", "argSchema": schema, "httpImpl": {"request": request}})
            assert call(app, "mine.get").data == 1
            result = call(app, "mine.get", a=4, b="x")
            assert (result.data, result.meta["upstream"]["status"]) == (1, 200)
            assert result.meta["upstream"]["duration_ms"] <= result.meta["duration_ms"]
            upstream.say(Reply(404))
            failed = call(app, "mine.get", a=4, b="x")
            assert (failed.ok, failed.meta["upstream"]["status"]) == (False, 404)
            upstream.seen.pop()
    assert [seen.target for seen in upstream.seen] == ["/x?a=3", "/x?a=4&b=x"]


def test_a_limit_counts_calls_through_every_door(app):
    id = bundle(app, say=ECHO | {"limits": {"maxCallsPerMinute": 2}})
    assert call(app, "mine.say", message="1").ok
    assert asyncio.run(app.run("mine.say(message='2')")).ok
    assert call(app, "mine.say", message="3").error.reason == "rate_limited"
    from onetool.sources.bundles.errors import RateLimitError

    with pytest.raises(RateLimitError) as caught:
        asyncio.run(app.bundles.invoke(id, "say", "1", {"message": "4"}))
    assert 0 < caught.value.retry_after <= 60


def test_a_limit_counts_no_call_that_was_refused_before_it_ran(app):
    bundle(app, say=ECHO | {"limits": {"maxCallsPerMinute": 1}})
    assert call(app, "mine.say", wrong=1).error.code == "invalid_args"
    assert call(app, "mine.say", allowed=["time.now"], message="x").error.reason == "denied"
    assert call(app, "mine.say", allowed=["mine.say"], message="x").error.reason == "denied"  # its function is not

    async def refuse(called, spec):
        return ToolFailure("no", reason="denied")

    made = ToolCall("1", "mine.say", {"message": "x"}, "test")
    assert asyncio.run(app.call(made, gate=refuse)).error.reason == "denied"
    result = call(app, "mine.say", message="x")
    assert (result.data, result.meta["rate_limit"]["remaining"]) == ("x", 0)


def test_a_limit_counts_a_call_once_however_often_it_is_tried(tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "onetool.yaml").write_text("packs: [flaky.py]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        limited = {"type": "python", "pythonImpl": {"func": "flaky.third"}, "limits": {"maxCallsPerMinute": 2}}
        bundle(app, third=limited)
        result = call(app, "mine.third")
        assert (result.data, result.meta["tries"], result.meta["rate_limit"]["remaining"]) == (3, 3, 1)


def test_calls_are_counted_whoever_makes_them(app):
    id = bundle(app, say=ECHO)
    call(app, "mine.say", message="x")
    asyncio.run(app.run("mine.say(message='x')"))
    asyncio.run(app.bundles.invoke(id, "say", "1", {"message": "x"}))
    call(app, "mine.say@1", message="x")
    until(lambda: app.bundles.get_tool(id, "say", "1")[0]["callCount"] == 4)
    call(app, "time.now")
    until(lambda: app.bundles.get_tool(built_in_id("time"), "now", "1")[0]["callCount"] == 1)
    app.bundles.delete_tool(id, "say", "1")
    assert len(app.bundles.store.counter.all()) == 1  # what was deleted has no usage


def test_a_broken_file_is_told_and_the_others_are_served(app, tmp_path):
    bundle(app, say=ECHO, other=ECHO)
    (file,) = tmp_path.glob("bundles/mine-*/tools/say@1.json")
    file.write_text('{"type": ')
    with App.open(tmp_path / "onetool.yaml") as other:
        assert names(other) == ["mine.other"]
        (mistake,) = [one for one in other.mistakes if one.file == str(file)]
        assert mistake.severity == "error"
        assert other.health()["registry"]["status"] == "degraded"


def test_who_stays_takes_in_what_is_edited_by_hand_and_tells(app, tmp_path, monkeypatch):
    monkeypatch.setattr("onetool.app.bundles.EVERY", 0.05)
    bundle(app, say=ECHO)
    (file,) = tmp_path.glob("bundles/mine-*/tools/say@1.json")
    app.tools()
    told = []
    app.on_change(lambda: told.append(1))
    app.connect()
    file.write_text(file.read_text().replace('"description": ""', '"description": "by hand"'))
    until(lambda: app.catalog.registry.get("mine.say").description == "by hand")
    until(lambda: told)  # right after that, by the same thread


def test_a_store_that_is_told_of_changes_is_not_looked_at_in_between(monkeypatch):
    pauses, woken = [], iter([True, True, False])

    class Told(Event):
        """Wakes at once as the script says, and then waits."""

        def wait(self, timeout):
            if timeout < 5:  # between two looks
                return super().wait(0)
            pauses.append(timeout)
            return next(woken, None) or super().wait(0 if len(pauses) == 3 else 60)

    monkeypatch.setattr("onetool.app.bundles.Event", Told)
    poller = StorePoller(lambda: None, 10.0)
    until(lambda: len(pauses) == 4)
    poller.close()
    assert pauses == [10.0, 20.0, 20.0, 10.0]


@pytest.fixture
def clock(monkeypatch):
    """A clock for the bundles of apps, by which the first load of tools takes `load` seconds."""
    clock = SimpleNamespace(now=1000.0, load=0.0)
    really = BundleTools.load

    def load(self, *args):
        clock.now += clock.load if self.count == 0 else 0.0
        return really(self, *args)

    monkeypatch.setattr("onetool.app.bundles.monotonic", lambda: clock.now)
    monkeypatch.setattr(BundleTools, "load", load)
    return clock


@pytest.mark.parametrize(("load", "looks"), [(0.01, [1, 2, 3, 4]), (0.5, [2, 3, 4]), (1.0, [3, 4])])
def test_files_are_not_looked_at_again_right_after_a_first_load_that_took_long(app, tmp_path, clock, load, looks):
    bundle(app, say=ECHO)
    clock.load = load
    with App.open(tmp_path / "onetool.yaml") as other:
        other.tools()
        store, began, looked = other.bundles.store, clock.now, []
        really = store.sync
        store.sync = lambda: (looked.append(round(clock.now - began)), really())[1]
        for second in (1, 2, 3, 4):
            clock.now = began + second
            other._bundles._poll(other.catalog.refresh_sync)
    assert looked == looks


def test_a_look_without_a_change_reads_no_bundles_and_no_words(app, tmp_path, clock):
    bundle(app, say=ECHO)
    with App.open(tmp_path / "onetool.yaml") as other:
        other.tools()
        store, asked = other.bundles.store, []
        for name in ("reap", "searched"):
            really = getattr(store, name)
            setattr(store, name, lambda name=name, really=really: (asked.append(name), really())[1])
        look = partial(other._bundles._poll, other.catalog.refresh_sync)
        look()
        assert asked == ["reap", "searched"]
        clock.now += 1
        look()
        assert asked == ["reap", "searched"]
        bundle(app, "second", say=ECHO)
        until(lambda: look() or len(asked) > 2)  # for a moment, what was seen last is current
        assert asked == ["reap", "searched", "searched"]
        clock.now += 60
        look()
        assert asked == ["reap", "searched", "searched", "reap"]


def test_a_reload_keeps_bundles_and_follows_the_home(app, tmp_path, monkeypatch):
    bundle(app, say=ECHO)
    app.reload()
    assert names(app) == ["mine.say"]
    monkeypatch.setenv("ONETOOL_HOME", str(tmp_path / "elsewhere"))
    app.reload()
    assert names(app) == []
    bundle(app, "others", say=ECHO)
    assert list(tmp_path.glob("elsewhere/bundles/others-*"))


def test_specs_of_tools_that_have_not_changed_are_the_same_ones(app):
    web = {"type": "http", "httpImpl": {"request": {"urlTemplate": "https://a.example/"}}}
    bundle(app, one=web, two=ECHO, three=script("1"))
    before = [spec for spec in app.tools() if spec.pack == "mine"]
    bundle(app, "more", three=script("3"))
    after = [spec for spec in app.tools() if spec.pack == "mine"]
    assert len(after) == 3
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_a_function_lends_its_schema_and_words_where_the_tool_says_nothing(app):
    bundle(app, say={"type": "python", "pythonImpl": {"func": "tools.echo"}})
    info = app.info("mine.say")
    assert info["inputSchema"] == app.info("tools.echo")["inputSchema"]
    assert info["description"] == app.info("tools.echo")["description"]
    assert call(app, "mine.say", message="hi").data == "hi"


def test_a_tool_that_is_switched_off_says_why_and_what_to_do(app, tmp_path):
    id = bundle(app, say=ECHO)
    app.bundles.patch_tool(id, "say", "1", {"isEnabled": False})
    assert call(app, "mine.say", message="x").error.hints == ("onetool bundles enable mine/say@1",)
    app.bundles.patch_bundle(id, {"isEnabled": False})
    assert "onetool bundles enable mine" in call(app, "mine.say", message="x").error.hints[0]


def test_a_tool_says_in_which_file_it_stands(app, tmp_path):
    bundle(app, say=ECHO)
    (file,) = tmp_path.glob("bundles/mine-*/tools/say@1.json")
    assert app.info("mine.say")["definedIn"] == str(file)


def test_python_keeps_its_own_names(app):
    bundle(app, "len", say=ECHO)
    bundle(app, "class", say=ECHO)
    assert asyncio.run(app.run("len([1, 2])")).data == 2
    assert len([one for one in app.mistakes if "Python itself" in str(one)]) == 2


def test_what_a_tool_stands_for_has_to_be_allowed_too(app, tmp_path):
    bundle(app, read={"type": "python", "pythonImpl": {"func": "fs.read_file"}})
    denied = call(app, "mine.read", allowed=["mine.read"], path="onetool.yaml")
    assert denied.error.reason == "denied"
    assert "fs.read_file" in denied.error.hints[0]


def test_a_bundle_does_not_take_the_name_of_a_server(tmp_path):
    server = {"command": sys.executable, "args": ["-c", "import time; time.sleep(30)"]}
    (tmp_path / "onetool.yaml").write_text(json.dumps({"servers": {"clock": server}}))
    with App.open(tmp_path / "onetool.yaml") as app:
        bundle(app, "clock", say=ECHO)
        assert names(app, "clock") == []
        assert any("shadowed" in str(one) for one in app.mistakes)


def test_a_snapshot_keeps_its_versions(app):
    id = bundle(app, say=ECHO)
    app.tools()
    before = app.catalog.registry.snapshot()
    app.bundles.delete_tool(id, "say", "1")
    app.tools()
    assert before.get("mine.say@1") is not None
    assert app.catalog.registry.get("mine.say@1") is None


def test_a_reload_gives_scripts_the_time_of_the_new_config(app, tmp_path):
    bundle(app, one=script("1"))
    app.tools()
    (tmp_path / "onetool.yaml").write_text("run: {timeout_s: 3}\n")
    app.reload()
    assert app.catalog.registry.get("mine.one").timeout == 3


def test_only_what_is_ours_is_built_in(tmp_path):
    mock = {"type": "mock", "mock_response": 21}
    tool = {
        "name": "time.mine",
        "description": "x",
        "type": "function",
        "handler": "x",
        "parameters": {"type": "object"},
    }
    (tmp_path / "onetool.yaml").write_text(json.dumps({"tools": [tool | {"implementation": mock}]}))
    with App.open(tmp_path / "onetool.yaml") as app:
        found = {f"time.{one['slug']}" for one in app.bundles.tools(ListQuery(bundle_ids=[built_in_id("time")]))[0]}
    assert found == {name for name in BUILT_IN_TOOLS if name.startswith("time.")}


def test_the_loop_is_not_held_up_while_tools_are_loaded(app, monkeypatch):
    bundle(app, say=ECHO)
    load, loop_runs = app.bundles.loading.load, Checkpoint()

    def slow(*args):
        loop_runs.pause_thread()
        return load(*args)

    monkeypatch.setattr(app.bundles.loading, "load", slow)

    async def main():
        calling = asyncio.create_task(app.call(ToolCall("1", "mine.say", {"message": "x"})))
        await loop_runs.arrival()
        loop_runs.open()
        return (await calling).data

    assert asyncio.run(main()) == "x"


def test_the_tag_of_a_tool_changes_when_its_function_goes(app):
    id = bundle(app, say=ECHO)
    before = app.bundles.get_tool(id, "say", "1")[1]
    app.bundles.patch_tool(built_in_id("tools"), "echo", "1", {"isEnabled": False})
    app.tools()
    after = app.bundles.get_tool(id, "say", "1")[1]
    assert after != before
    assert app.bundles.patch_tool(id, "say", "1", {"isEnabled": False}, after)[0]["isEnabled"] is False


def test_a_store_that_can_not_be_read_takes_nothing_else_with_it(tmp_path, monkeypatch):
    from onetool.sources.bundles.errors import UnavailableError
    from onetool.sources.bundles.store.store import BundleStore

    def broken(*_):
        raise UnavailableError("no luck today")

    (tmp_path / "onetool.yaml").write_text("{}\n")
    (tmp_path / "bundles").mkdir()
    monkeypatch.setattr(BundleStore, "state", broken)
    with App.open(tmp_path / "onetool.yaml") as app:
        assert any("no luck today" in str(one) for one in app.mistakes)
        assert call(app, "time.now").ok
        assert asyncio.run(app.run("1 + 1")).data == 2


def test_what_is_switched_off_stays_so_where_the_store_can_not_be_read(app, monkeypatch):
    from onetool.sources.bundles.errors import UnavailableError
    from onetool.sources.bundles.store.store import BundleStore

    app.bundles.patch_tool(built_in_id("tools"), "echo", "1", {"isEnabled": False})
    app.tools()
    assert not call(app, "tools.echo", message="x").ok

    def broken(*_, **__):
        raise UnavailableError("no luck today")

    monkeypatch.setattr(BundleStore, "settings", broken)
    app.reload()
    assert any("no luck today" in str(one) for one in app.mistakes)
    assert not call(app, "tools.echo", message="x").ok


def test_a_pack_that_is_switched_off_has_no_prompts_and_no_resources(tmp_path):
    from onetool.sources.bundles.derived import bundle_id

    (tmp_path / "tea.py").write_text(
        "from onetool.sdk import prompt, resource\n\n"
        "def pour() -> str:\n    'Pour.'\n    return 'tea'\n\n"
        "@prompt\ndef brew() -> str:\n    'How to brew.'\n    return 'Brew tea.'\n\n"
        "@resource('tea://leaves')\ndef leaves() -> str:\n    'All leaves.'\n    return 'green'\n"
    )
    (tmp_path / "onetool.yaml").write_text("packs: [tea.py]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        assert ("brew" in app.catalog.prompts, "tea://leaves" in [one.uri for one in app.catalog.resources]) == (
            True,
            True,
        )
        app.bundles.patch_bundle(bundle_id("pack", "tea"), {"isEnabled": False})
        app.tools()
        assert ("brew" in app.catalog.prompts, "tea://leaves" in [one.uri for one in app.catalog.resources]) == (
            False,
            False,
        )
        app.bundles.patch_bundle(bundle_id("pack", "tea"), {"isEnabled": True})
        app.tools()
        assert ("brew" in app.catalog.prompts, "tea://leaves" in [one.uri for one in app.catalog.resources]) == (
            True,
            True,
        )


def test_who_puts_a_tool_into_a_shadowed_bundle_is_told(app):
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "time"})
    app.tools()
    tool, _ = app.bundles.put_tool(id, "later", "1", script("1"))
    (told,) = tool["warnings"]
    assert told == (
        f"the bundle 'time' ({id}) is shadowed: a pack has the same name in code: "
        "choose another slug, or call the tools by id over REST"
    )


def test_a_shadowed_bundle_is_not_allowed_by_the_name_of_the_other_one(app):
    bundle(app, "a", t=ECHO)
    second = bundle(app, "a", t=ECHO)
    app.tools()
    allowed = ["a.t", "a.t@1", "tools.echo"]
    denied = asyncio.run(app.bundles.invoke(second, "t", "1", {"message": "x"}, allowed=allowed))
    assert denied.error.reason == "denied"


def test_a_built_in_tool_that_is_off_says_how_to_switch_it_on(app):
    app.bundles.patch_bundle(built_in_id("time"), {"isEnabled": False})
    assert call(app, "time.now").error.hints == ("onetool bundles enable time",)


def test_http_tools_that_do_not_say_are_repeated_as_the_config_says(tmp_path):
    with Upstream() as upstream:
        hosts = [{"host": upstream.netloc, "allowPrivate": True}]
        config = {"allowedHosts": hosts, "defaults": {"retries": 1}}
        (tmp_path / "onetool.yaml").write_text(json.dumps(config))
        request = {"urlTemplate": f"{upstream.url}/x"}

        def tool(**more):
            return {"type": "http", "httpImpl": {"request": {**request, **more}}}

        with App.open(tmp_path / "onetool.yaml") as app:
            bundle(app, quiet=tool(), once=tool(retries=0), post=tool(method="POST"))
            upstream.say(Reply(503))
            for name, tries in (("quiet", 2), ("once", 1), ("post", 1)):
                before = len(upstream.seen)
                assert not call(app, f"mine.{name}").ok
                assert len(upstream.seen) - before == tries, name
