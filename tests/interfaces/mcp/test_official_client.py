"""The official SDK as the client: what it makes of our server, over both transports and in both eras."""

import asyncio
import json
import os
import re
import sys

import anyio
import pytest
from helpers import until, until_async
from interfaces.mcp.peers import NEW, OLD
from interfaces.mcp.servers import CONFIG, children_of, environment
from mcp import MCPError
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)

# The SDK warns of what the newest revision has no more.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


def with_client(connect, work, **options):
    """Do something with a client that is connected."""
    wrong = []

    async def connected():
        async with connect(**options) as client:
            try:
                await asyncio.wait_for(work(client), 60)
            except Exception as error:  # told outside: the client would wrap it in group after group
                wrong.append(error)

    asyncio.run(connected())
    for error in wrong:
        raise error


def text(result):
    (block,) = result.content
    return block.text


PIXEL = ("image", "image/png")


def shown(block):
    """Return the type of a block, and what tells it from others of its type."""
    data = block.model_dump(by_alias=True, mode="json")
    return block.type, data.get("text") or data.get("uri") or data["mimeType"]


def test_it_connects(connect):
    async def work(client):
        assert client.protocol_version == (NEW if connect.is_new else OLD)
        assert (client.server_info.name, client.server_info.title) == ("onetool", "OneTool")
        assert client.instructions.startswith("OneTool gives you ")
        capabilities = client.server_capabilities
        assert capabilities.tools.list_changed
        assert capabilities.prompts.list_changed
        assert capabilities.resources.subscribe
        if not connect.is_new:
            await client.send_ping()

    with_client(connect, work)


def test_it_lists_and_calls_tools(connect):
    async def work(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["plus"].input_schema["required"] == ["a"]
        assert text(await client.call_tool("plus", {"a": 1, "b": 2})) == "3"
        point = await client.call_tool("working__point", {"x": 1, "y": 2})  # which it holds against the output schema
        assert point.structured_content == {"x": 1, "y": 2}
        words, picture = (await client.call_tool("working__picture")).content
        assert (words.text, picture.mime_type) == ("look:", "image/png")

    with_client(connect, work)


def test_it_gets_pictures_of_packs_once(connect):
    captioned = ("in_list", "with_string", "with_strings", "in_tuple", "in_lists", "as_result")
    expected = {
        "alone": [PIXEL],
        "with_types": [PIXEL],
        **{tool: [PIXEL, ("text", "x")] for tool in captioned},
        "in_object": [("text", '{"caption":"x"}'), PIXEL],
        "rows": [("text", '{"name":"a"}'), PIXEL, ("text", '{"name":"b"}'), ("resource_link", "file:///b.png")],
    }

    async def work(client):
        await client.list_tools()  # what it lists is held against each answer
        for tool, content in expected.items():
            answer = await client.call_tool(f"drawing__{tool}")
            assert [shown(block) for block in answer.content] == content, tool
            assert answer.structured_content is None, tool

    with_client(connect, work)


def test_it_gets_data_with_pictures_in_it_as_its_schema_promises(connect):
    async def work(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["drawing__titled"].output_schema["required"] == ["title", "picture"]
        titled = await client.call_tool("drawing__titled")
        assert [shown(block) for block in titled.content] == [("text", '{"title":"x"}'), PIXEL]
        assert titled.structured_content["picture"]["mimeType"] == "image/png"
        data = await client.call_tool("drawing__open_data")
        assert (
            json.loads(text(data))
            == data.structured_content
            == {"type": "chart", "parts": [{"type": "text", "size": 3}]}
        )

    with_client(connect, work)


def test_it_sees_what_goes_wrong(connect):
    async def work(client):
        failed = await client.call_tool("working__fail")
        assert (failed.is_error, text(failed)) == (True, "Error: the shop is closed\n  come back tomorrow")
        wrong = await client.call_tool("plus", {"b": "x"})
        assert wrong.is_error
        assert "b: expected a whole number" in text(wrong)
        for name, code in (("no_such_tool", -32602), ("", -32602)):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name)
            assert caught.value.code == code
        with pytest.raises(MCPError) as caught:
            await client.read_resource("shelf://nothing")
        assert caught.value.code == (-32602 if connect.is_new else -32002)
        assert text(await client.call_tool("plus", {"a": 1})) == "1"

    with_client(connect, work)


def test_it_runs_code_and_reads_a_large_result(connect):
    async def work(client):
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "run"
        result = await client.call_tool("run", {"code": "[plus(a=n) for n in range(3)]"})
        assert text(result) == "[0, 1, 2]"
        (words,) = (await client.call_tool("run", {"code": "working.lines(count=1000)"})).content
        handle, size = re.search(r'handle: "?(\w+)"?, size: (\d+)', words.text).groups()
        (content,) = (await client.read_resource(f"ot://results/{handle}")).contents
        assert content.text.endswith("\nline 1000")
        assert len(content.text) == int(size)

    with_client(connect, work, menu="run")


def test_it_searches_and_calls(connect):
    async def work(client):
        assert text(await client.call_tool("search", {"query": "add two numbers"})).startswith("working.add(a: int, ")
        assert text(await client.call_tool("call", {"name": "working.add", "args": {"a": 7}})) == "7"

    with_client(connect, work, menu="search")


def test_it_hears_of_progress_and_messages(connect):
    progress, messages = [], []

    async def on_progress(done, total, message):
        progress.append((done, total))

    async def on_message(params):
        messages.append((params.level, params.data, params.logger))

    async def work(client):
        if not connect.is_new:
            await client.set_logging_level("warning")
        steps = {"steps": [1, 5, 10]}
        assert text(await client.call_tool("working__advance", steps, progress_callback=on_progress)) == "there"
        assert text(await client.call_tool("working__tell", {"levels": ["info", "warning", "alert"]})) == "told"
        with anyio.fail_after(5):
            await until_async(lambda: len(messages) >= 2 and len(progress) >= 3)

    with_client(connect, work, logging_callback=on_message, log_level="warning")
    assert progress == [(1, 10), (5, 10), (10, 10)]
    assert messages == [(level, {"level is": level}, "working") for level in ("warning", "alert")]


def test_it_gets_prompts_and_resources_and_completes(connect):
    async def work(client):
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert [argument.name for argument in prompts["greeting"].arguments] == ["name", "times", "color"]
        got = await client.get_prompt("greeting", {"name": "Ada", "times": "2"})
        assert got.messages[0].content.text == "red: Hello, Ada! Hello, Ada! "
        got = await client.get_prompt("squares", {"count": "3"})
        assert "range(3)" in got.messages[0].content.text
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
        assert {"ot://tools", "shelf://note"} <= set(resources)
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        assert "shelf://books/{author}/{title}" in templates
        (content,) = (await client.read_resource("shelf://bytes")).contents
        assert content.blob == "AP8="
        (content,) = (await client.read_resource("shelf://books/a/b%20c")).contents
        assert json.loads(content.text) == {"author": "a", "title": "b c"}
        color = PromptReference(type="ref/prompt", name="greeting")
        completed = await client.complete(color, {"name": "color", "value": "g"})
        assert completed.completion.values == ["green", "grey"]
        tool = ResourceTemplateReference(type="ref/resource", uri="ot://tools/{name}")
        completed = await client.complete(tool, {"name": "name", "value": "working.a"})
        assert completed.completion.values == ["working.add", "working.advance"]

    with_client(connect, work)


async def elicited(context, params):
    known = {"name": "Ada", "color": "blue", "age": 36, "ok": True}
    wanted = params.requested_schema["properties"]
    return ElicitResult(action="accept", content={key: known[key] for key in wanted})


async def sampled(context, params):
    said = f"{params.messages[0].content.text} {params.max_tokens} {params.system_prompt}"
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text=said))


async def rooted(context):
    return ListRootsResult(roots=[Root(uri="file:///home")])


ANSWERS = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": rooted}


def test_it_is_asked_and_answers(connect, tmp_path):
    async def work(client):
        assert text(await client.call_tool("asking__name")) == "Hello, Ada!"
        assert text(await client.call_tool("asking__both")) == "Ada likes blue"
        assert text(await client.call_tool("asking__one_by_one")) == "Ada likes blue"
        assert text(await client.call_tool("asking__age")) == "37"
        assert text(await client.call_tool("asking__model", {"prompt": "Hm?"})) == "It says: Hm? 7 Be brief."
        assert text(await client.call_tool("asking__folders")) == "file:///home"
        assert text(await client.call_tool("asking__once", {"path": str(tmp_path / "marks")})) == "went on: True"
        assert (tmp_path / "marks").read_text() == "before\nafter\n"
        got = await client.get_prompt("for_whom")
        assert got.messages[0].content.text == "Write to Ada."
        (content,) = (await client.read_resource("shelf://owner")).contents
        assert content.text == "Ada"

    with_client(connect, work, **ANSWERS)


def test_it_is_asked_by_tools_that_code_calls(connect):
    async def work(client):
        code = "[asking.name(), asking.one_by_one(), asking.model(prompt='Hm?'), asking.folders()]"
        assert text(await client.call_tool("run", {"code": code})) == (
            '["Hello, Ada!", Ada likes blue, "It says: Hm? 7 Be brief.", file:///home]'
        )

    with_client(connect, work, menu="run", **ANSWERS)


def test_it_may_decline_or_not_be_able_to_answer(connect):
    async def declined(context, params):
        return ElicitResult(action="decline")

    async def work(client):
        assert text(await client.call_tool("asking__name")) == "Error: the person declined"
        assert text(await client.call_tool("asking__forgiving")) == "never mind (decline)"
        if connect.is_new:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("asking__folders")
            assert caught.value.code == -32021
        else:
            assert (await client.call_tool("asking__folders")).is_error

    with_client(connect, work, elicitation_callback=declined)


@pytest.mark.long
def test_many_calls_at_once(connect, tmp_path):
    async def work(client):
        path = tmp_path / "it"
        slow = asyncio.create_task(client.call_tool("working__wait_for", {"path": str(path)}))
        quick = await asyncio.gather(*(client.call_tool("plus", {"a": n}) for n in range(40)))
        assert [text(result) for result in quick] == [str(n) for n in range(40)]
        assert not slow.done()
        path.touch()
        assert text(await slow) == "it came"

    with_client(connect, work)


def test_it_calls_off_what_it_does_not_want_any_more(connect, tmp_path):
    async def work(client):
        path = tmp_path / "it"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "working__hang", {"path": str(path)})
            await until_async(lambda: (tmp_path / "it.began").exists())
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(until, (tmp_path / "it.cancelled").exists)
        assert text(await client.call_tool("plus", {"a": 1})) == "1"

    with_client(connect, work)


CHANGES = '''
import os, signal
from pathlib import Path

def change() -> str:
    """Add a pack, and reload."""
    Path(__file__).with_name("waving.py").write_text("def wave() -> str: return 'o/'")
    os.kill(os.getpid(), signal.SIGHUP)
    return "changed"
'''


def test_it_hears_that_tools_have_changed(connect, tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "changes.py").write_text(CHANGES)
    (tmp_path / "onetool.yaml").write_text("{}")
    heard = []

    async def on_message(message):
        heard.append(type(message).__name__)

    async def work(client):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "waving__wave" not in names
        if connect.is_new:
            async with client.listen(tools_list_changed=True, resource_subscriptions=["ot://tools"]) as changes:
                assert text(await client.call_tool("changes__change")) == "changed"
                found = {type(await anext(changes)).__name__, type(await anext(changes)).__name__}
                assert found == {"ToolsListChanged", "ResourceUpdated"}
        else:
            await client.subscribe_resource("ot://tools")
            assert text(await client.call_tool("changes__change")) == "changed"
            with anyio.fail_after(5):
                await until_async(lambda: len(set(heard)) >= 2)
            assert set(heard) == {"ToolListChangedNotification", "ResourceUpdatedNotification"}
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "waving__wave" in names
        assert text(await client.call_tool("waving__wave")) == "o/"

    with_client(connect, work, config=tmp_path / "onetool.yaml", message_handler=on_message)


def test_a_server_on_a_pipe_ends_with_its_client(tmp_path):
    command = ["-m", "onetool", "--config", str(CONFIG), "mcp"]
    params = StdioServerParameters(command=sys.executable, args=command, env=environment(tmp_path))

    async def work():
        before = set(children_of(os.getpid()))
        with (tmp_path / "log").open("w") as log:
            async with Client(stdio_client(params, errlog=log)) as client:
                assert text(await client.call_tool("run", {"code": "1"})) == "1"
                (pid,) = set(children_of(os.getpid())) - before
                return [pid, *children_of(pid)]

    processes = asyncio.run(work())
    assert len(processes) > 1
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), 5)
