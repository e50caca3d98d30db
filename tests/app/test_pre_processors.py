"""Pre-processors of tools in bundles: through every interface, before validation, and never with a tool in hand."""

import asyncio
import json
import logging

import pytest

from onetool import App, ToolCall
from onetool.core.errors import ToolFailure
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.queries import ListQuery

PACK = '''
from onetool.sdk import call_tool, get_pack

def join(first: str, second: str = "") -> str:
    """Join two texts."""
    return f"{first}+{second}"

async def join_async(first: str) -> str:
    """The same."""
    return f"{first}!"

def outer(text: str) -> list:
    """Calls another tool, in two ways."""
    return [call_tool("b.renames", text=text), get_pack("b").renames(text=text)]

def login(password: str) -> str:
    """Log in."""
    raise ValueError(f"wrong: {password}")
'''
RENAMES = "args['first'] = args.pop('text').strip()\nargs"


@pytest.fixture
def app(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "p.py").write_text(PACK)
    config = {"packs": ["packs"], "run": {"timeout_s": 2, "memory_mb": 64}, "stats": {"enabled": True}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    with App.open(tmp_path / "onetool.yaml") as app:
        app.b = new_id(1_790_000_000)
        app.bundles.put_bundle(app.b, {"slug": "b"})
        yield app


def put(app, slug, *codes, func="p.join", **more):
    steps = [{"type": "script", "code": code} for code in codes]
    tool = {"type": "python", "pythonImpl": {"func": func}, "preProcessors": steps, **more}
    return app.bundles.put_tool(app.b, slug, "1", tool)[0]


def call(app, name, args, **more):
    return asyncio.run(app.call(ToolCall("1", name, args), **more))


def wrong(app, slug, args=None):
    error = call(app, f"b.{slug}", args or {}).error
    assert error.code == "invalid_args"
    return error.message.removeprefix(f"Invalid arguments for b.{slug}: ")


def test_arguments_are_changed_one_after_the_other_and_then_validated(app):
    put(app, "renames", RENAMES, "{**args, 'second': args['first'].upper()}")
    assert call(app, "b.renames", {"text": " a "}).data == "a+A"
    assert call(app, "b.renames", {"text": "a", "first": "x", "second": 5}).data == "a+A"
    assert "nosuch" in wrong(app, "renames", {"text": "a", "nosuch": 1})  # what is validated is what they made
    put(app, "breaks", "{'first': 1}")
    assert "first: expected" in wrong(app, "breaks", {"first": "right"})


def test_every_type_of_tool(app):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    steps = [{"type": "script", "code": "{'n': int(args['n'])}"}]
    script = {"type": "script", "argSchema": schema, "scriptImpl": {"code": "n + 1"}, "preProcessors": steps}
    app.bundles.put_tool(app.b, "script", "1", script)
    put(app, "async", RENAMES, func="p.join_async")
    assert call(app, "b.script", {"n": "3"}).data == 4
    assert call(app, "b.async", {"text": "x"}).data == "x!"


def test_doors_to_code_and_other_tools(app):
    put(app, "renames", RENAMES)
    assert call(app, "p.outer", {"text": " x "}).data == ["x+", "x+"]
    code = "import asyncio\n[b.renames(text='a'), ot.call('b.renames@1', {'text': 'b'})]"
    assert asyncio.run(app.run(code)).data == ["a+", "b+"]
    later = "import asyncio\nawait asyncio.gather(b.renames(text='a'), b.renames(text='b'))"
    assert asyncio.run(app.run(later)).data == ["a+", "b+"]
    result = asyncio.run(app.bundles.invoke(app.b, "renames", "1", {"text": "r"}))
    assert result.data == "r+"
    caught = "try:\n    b.renames(first='x')\nexcept ValueError as error:\n    found = str(error)\nfound"
    assert "preProcessors[0]: line 1: KeyError" in asyncio.run(app.run(caught)).data


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = 1\ny = 1 / 0\nargs", "preProcessors[1]: line 2: ZeroDivisionError"),
        ("raise ValueError('no city')", "preProcessors[1]: line 1: ValueError: no city"),
        ("args['first'] = 'x'", "preProcessors[1]: returned nothing, expected an object"),
        ("[1]", "preProcessors[1]: returned a value of type list"),
        ("while True: pass\nargs", "preProcessors[1]: "),
        ("'x' * 10**9\nargs", "preProcessors[1]: "),
        ("{'first': 'x' * 3_000_000}", "preProcessors[1]: "),
        ("x = [1]\nfor _ in range(40): x = [x, x]\n{'first': x}", "preProcessors[1]: "),
        ("name = 'p.join'\not.call(name, {'first': 'x'})\nargs", "preProcessors[1]: line 2: Tool not found"),
        ("open('/etc/passwd').read()\nargs", "preProcessors[1]: line 1: "),
        ("import os\nos.environ\nargs", "preProcessors[1]: line 2: "),
    ],
)
def test_a_failure_is_invalid_args_and_names_the_step(app, code, why):
    put(app, "t", "args", code)
    assert why in wrong(app, "t", {"first": "x"})
    assert asyncio.run(app.run("1 + 1")).data == 2


@pytest.mark.parametrize(
    ("step", "pointer", "why"),
    [
        ({"type": "script", "code": "args\n +* 1"}, "/preProcessors/0/code", "line 2"),
        ({"type": "script", "code": "p.join(first='x')\nargs"}, "/preProcessors/0/code", "can't call tools"),
        ({"type": "script", "code": "ot.call('p.join', {})\nargs"}, "/preProcessors/0/code", "can't call tools"),
        ({"type": "scrpt", "code": "args"}, "/preProcessors/0/type", "did you mean script"),
        ({"code": "args"}, "/preProcessors/0/type", '"type": "script"'),
        ({"type": "script"}, "/preProcessors/0", "code"),
        ({"type": "script", "code": ""}, "/preProcessors/0/code", ""),
        ({"type": "script", "code": "args", "more": 1}, "/preProcessors/0/more", "no such key"),
    ],
)
def test_what_can_not_run_is_refused_when_it_is_put(app, step, pointer, why):
    with pytest.raises(InvalidError) as caught:
        app.bundles.put_tool(
            app.b, "t", "1", {"type": "python", "pythonImpl": {"func": "p.join"}, "preProcessors": [step]}
        )
    assert (caught.value.pointer, why in str(caught.value)) == (pointer, True), caught.value


def test_an_approval_shows_the_arguments_after_them(app):
    put(app, "renames", RENAMES)
    put(app, "fails", "1 / 0")
    asked = []

    async def gate(call, spec):
        asked.append((spec.name, dict(call.args)))
        return ToolFailure("no", reason="denied")

    assert call(app, "b.renames", {"text": " a "}, gate=gate).error.reason == "denied"
    assert call(app, "b.fails", {}, gate=gate).error.code == "invalid_args"
    asyncio.run(app.run("b.renames(text='b')", gate=gate))
    assert asked == [("b.renames", {"first": "a"}), ("b.renames", {"first": "b"})]


def test_records_have_the_arguments_as_validated_and_no_secret_ones(app, caplog):
    put(app, "login", "args['password'] = args.pop('pw') + '-salted-9'\nargs", func="p.login")
    put(app, "renames", RENAMES)
    events = []
    app.runtime.executor._recorders = (*app.runtime.executor._recorders, events.append)
    with caplog.at_level(logging.DEBUG):
        call(app, "b.renames", {"text": " shown "})
        result = call(app, "b.login", {"pw": "hunter2-is-mine"})
    assert [event.shown_args() for event in events] == [{"first": "shown"}, {"password": "***"}]
    assert "salted-9" not in events[1].error.message
    assert result.error.code == "execution_error"
    assert "salted-9" not in caplog.text


def test_they_are_not_cached_and_cost_one_call(app):
    seen = []
    app.runtime.executor._recorders = (*app.runtime.executor._recorders, seen.append)
    put(app, "limited", RENAMES, limits={"maxCallsPerMinute": 2})
    for _ in range(2):
        assert call(app, "b.limited", {"text": "x"}).ok
    assert call(app, "b.limited", {"text": "x"}).error.reason == "rate_limited"
    assert [event.tool for event in seen] == ["b.limited"] * 3


def test_a_call_that_is_cancelled_while_they_run_ends(app):
    put(app, "t", "while True: pass\nargs")

    async def main():
        task = asyncio.create_task(app.call(ToolCall("1", "b.t", {"first": "x"})))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await app.run("1 + 1")

    assert asyncio.run(main()).data == 2


def test_they_are_kept_exported_and_a_change_of_them_is_a_change_of_the_tool(app):
    made = put(app, "renames", RENAMES)
    got = app.bundles.get_tool(app.b, "renames", "1")[0]
    assert [dict(one) for one in got["preProcessors"]] == [{"type": "script", "code": RENAMES}]
    assert "preProcessors" not in put(app, "plain")
    from onetool.sources.bundles.archive import pack, unpack

    store = app.bundles.store
    tools = store.tools(ListQuery(bundle_ids=[app.b], include_disabled=True))
    again = unpack(pack(store.bundle(app.b), tools))
    assert {tool.slug: tool.pre_processors for tool in again.tools} == {t.slug: t.pre_processors for t in tools}
    from onetool.sources.bundles.store.text import read_tool_file, tool_text

    tool = store.tool(app.b, "renames", "1")
    text = tool_text(tool)
    assert read_tool_file(text, app.b, "", 0) == tool
    edited = text.replace(b"strip()", b"lower()")
    later = read_tool_file(edited, app.b, "", 4_000_000_000 * 10**9)
    assert later.modified_at > made["modifiedAt"]
    switched = text.replace(b'"isEnabled": true', b'"isEnabled": false')
    assert read_tool_file(switched, app.b, "", 4_000_000_000 * 10**9).modified_at == made["modifiedAt"]


def test_files_without_them_are_as_they_were(app):
    from onetool.sources.bundles.store.text import tool_text

    put(app, "plain")
    assert b"preProcessors" not in tool_text(app.bundles.store.tool(app.b, "plain", "1"))
