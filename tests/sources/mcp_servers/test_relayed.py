"""Through us and directly: a server's answers are no worse for having come through somebody else."""

import asyncio
import re
import sys
from contextlib import asynccontextmanager

import pytest
from interfaces.mcp.servers import environment
from mcp import Client, StdioServerParameters
from sources.mcp_servers.harness import SCRIPTS, call, ran
from warm import program

LONG = "a default that takes more than forty characters"
SECRET = "s3cret-of-the-test"


@pytest.fixture
def app(harness):
    with harness.app({"odd": harness.nasty("wraps")}) as app:
        yield app


# In code


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("odd.add(a=2, b=3) + 1", 6),
        ("odd.query()['rows'][1][1]", "b"),
        ("odd.zip_code()", "00501"),
        ("[row['n'] for row in odd.rows()]", [1, 2]),
        ("odd.named()", {"result": 3}),
        ("odd.maybe()", None),
        ("odd.empty()", []),
        ("odd.read(size=1)", {"content": "hello world\n"}),
        ("odd.beside(size=1)", {"size": 1}),
    ],
)
def test_in_code_the_value_is_what_a_person_would_expect(app, code, value):
    result = ran(app, code)
    assert (result.error, result.data) == (None, value)


@pytest.mark.parametrize(
    ("tool", "returns"),
    [
        ("add", "int"),
        ("query", "str | dict | list"),
        ("rows", "[{n: int}]"),
        ("named", "{result: int}"),
        ("maybe", "str | None | dict | list"),
        ("read", "{content}"),
    ],
)
def test_the_signature_says_the_type_that_code_gets(app, tool, returns):
    assert ran(app, f"ot.signature('odd.{tool}')").data.endswith(f" -> {returns}")


def test_the_signature_shows_a_default_where_there_is_one(app):
    assert ran(app, "ot.signature('odd.long_default')").data == (
        f"odd.long_default(words: str = {LONG!r}, rest: str = '...')"
    )


def test_help_says_what_code_gets(app):
    assert "Returns: list[{n: int}]" in ran(app, "ot.help('odd.rows')").data
    assert "Returns: str | dict | list" in ran(app, "ot.help('odd.query')").data


def test_a_value_that_is_not_what_was_promised_fails(app):
    assert call(app, "odd.wrong").error is not None


# For clients of MCP


@asynccontextmanager
async def ours(menu, harness, **more):
    """Our own server, by the official client: a function that calls a tool of the server behind it."""
    config = harness.config({"odd": harness.nasty("wraps")}, **more)
    env = environment(harness.folder, ONETOOL_CONFIG=str(config))
    command, *rest = program(["mcp", "--menu", menu], env)
    async with Client(StdioServerParameters(command=command, args=rest, env=env), cache=None) as client:

        async def call(tool, args):
            if menu == "search":
                return await client.call_tool("call", {"name": f"odd.{tool}", "args": args})
            if menu == "run":
                return await client.call_tool("run", {"code": f"odd.{tool}(**{args!r})"})
            while f"odd__{tool}" not in {one.name for one in (await client.list_tools()).tools}:
                await asyncio.sleep(0.01)
            return await client.call_tool(f"odd__{tool}", args)

        yield call


async def through(menu, harness, tool, args, **more):
    async with ours(menu, harness, **more) as call:
        return await call(tool, args)


@asynccontextmanager
async def alone():
    """The same without us."""
    start = StdioServerParameters(command=sys.executable, args=[str(SCRIPTS / "wraps.py")])
    async with Client(start) as client:
        await client.list_tools()
        yield client.call_tool


def shown(result):
    content = [block.model_dump(by_alias=True, exclude_none=True) for block in result.content]
    return content, result.structured_content, bool(result.is_error)


CALLS = [
    ("read", {"size": 1}),
    ("query", {}),
    ("rows", {}),
    ("empty", {}),
    ("add", {"a": 1, "b": 2}),
    ("beside", {"size": 10}),
    ("tells", {"words": '{"a": 1}  '}),
]
LARGE = ("read", {"size": 5_000})  # what was promised is kept also where it is large


@pytest.mark.parametrize(("menu", "calls"), [("direct", [*CALLS, LARGE]), ("search", CALLS)])
def test_content_and_structured_content_come_as_they_are_sent(harness, menu, calls):
    async def main():
        async with alone() as one, ours(menu, harness) as other:
            return [(name, shown(await one(name, args)), shown(await other(name, args))) for name, args in calls]

    for name, sent, relayed in asyncio.run(main()):
        assert relayed == sent, name


@pytest.mark.parametrize(("menu", "tool"), [("direct", "tells"), ("search", "tells")])
def test_a_large_text_is_stored(harness, menu, tool):
    words = "a line\n" * 5_000
    result = asyncio.run(through(menu, harness, tool, {"words": words}))
    (note,) = result.content
    assert "was stored" in note.text
    assert f"size: {len(words)}" in note.text
    assert result.structured_content is None


def test_what_is_beside_a_large_text_stays_beside_it(harness):
    result = asyncio.run(through("search", harness, "beside", {"size": 50_000}))
    assert [block.type for block in result.content] == ["text", "resource_link"]
    assert "was stored" in result.content[0].text
    assert result.content[1].name == "a"
    assert result.structured_content == {"size": 50_000}


def test_large_structured_content_that_nobody_announced_is_stored_too(harness):
    result = asyncio.run(through("search", harness, "read", {"size": 5_000}))
    assert result.structured_content is None
    assert "was stored" in result.content[0].text
    words, where = asyncio.run(through("search", harness, "summed_up", {"size": 5_000})).content
    assert words.text == "see the data"
    assert re.fullmatch(
        r"The structured content is large and was stored\. "
        r'Read it with: call\(name="ot\.result", args={"handle": "\w{32}", "offset": 1}\)',
        where.text,
    )


@pytest.mark.parametrize("menu", ["direct", "search"])
def test_secrets_are_masked_in_both_forms(harness, menu):
    async def main():
        secrets = {"secrets": {"KEY": SECRET}}
        return await through(menu, harness, "echoes_key", {}, **secrets)

    block = harness.nasty("wraps", env={"KEY": SECRET})
    harness.nasty = lambda *_, **__: block
    content, structured, _ = shown(asyncio.run(main()))
    assert content[0]["text"] == "the key is ***"
    assert structured == {"key": "***"}
