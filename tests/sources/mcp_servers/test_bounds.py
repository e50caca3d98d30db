"""What one server may cost, and which addresses it may take."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from helpers import each
from mcp_types import JSONRPCError, JSONRPCRequest
from sources.mcp_servers.harness import call, settle

from onetool.core.errors import ToolFailure
from onetool.core.json_data import MAX_PARTS, data_in
from onetool.services.secrets import Secrets
from onetool.sources.mcp_servers.conversion import resources_of
from onetool.sources.mcp_servers.opening import CompletedReadStream, ProcessReadStream, has_at_most
from onetool.sources.mcp_servers.process import ProcessLines
from onetool.sources.mcp_servers.server_cache import Offers
from onetool.sources.mcp_servers.settings import ServerSettings


class Silent:
    def write_stray(self, line):
        """Nobody reads it."""


def received(*lines, places=64):
    """The messages in these lines, as the SDK gets them."""

    async def read():
        heard = ProcessLines(lambda _: None)
        heard.feed(b"".join(line + b"\n" for line in lines))
        heard.end()
        unanswered = asyncio.Semaphore(places)
        connection = SimpleNamespace(is_stateless=False)
        stream = CompletedReadStream(ProcessReadStream(heard, Silent()), connection, unanswered)
        return [item.message async for item in stream], unanswered

    return asyncio.run(read())


def answer(result):
    return b'{"jsonrpc": "2.0", "id": 7, "result": ' + result + b"}"


def test_an_answer_of_too_many_parts_is_not_read():
    (message,), _ = received(answer(b'{"a": [' + b",".join([b"[]"] * (MAX_PARTS + 1)) + b"]}"))
    assert isinstance(message, JSONRPCError)
    assert (message.id, message.error.message) == (7, "its response can't be read: it has more than 500,000 parts")


def test_signs_in_a_text_are_no_parts():
    (message,), _ = received(answer(json.dumps({"a": 'x,[{"\\ ' * MAX_PARTS}).encode()))
    assert len(message.result["a"]) == 7 * MAX_PARTS


@pytest.mark.parametrize("value", [[[]] * 11, {str(n): n for n in range(11)}, [[0] * 5, {"a": [0] * 5}]])
def test_parts_are_counted_all_the_way_down(value):
    assert not has_at_most(10, value)
    assert has_at_most(14, value)


def test_a_text_of_too_many_parts_stays_text():
    text = f"[{'[],' * MAX_PARTS}[]]"
    assert data_in(text) is text


def test_an_answer_that_can_not_be_read_is_known_by_its_own_id():
    broken = b'{"jsonrpc": "2.0", "id": 7, "result": {"id": 8, ]}'
    (message,), _ = received(broken)
    assert message.id == 7
    assert received(b'{"jsonrpc": "2.0", "result": {"id": 8, ]}')[0] == []


def test_requests_of_a_server_take_places():
    messages, unanswered = received(
        *[b'{"jsonrpc": "2.0", "id": %d, "method": "ping"}' % n for n in range(3)], places=3
    )
    assert all(isinstance(message, JSONRPCRequest) for message in messages)
    assert unanswered.locked()


@each(
    ("template", "here"),
    [
        ("notes://{day}", "notes://{day}"),
        ("file:///{path}", "file:///{path}"),
        ("{x}://{y}", "ot://packs/s/{x}://{y}"),
        ("file://{path}", "ot://packs/s/file://{path}"),
        ("docs/{name}", "ot://packs/s/docs/{name}"),
        ("ot://tools/{x}", None),
    ],
)
def test_a_template_keeps_to_its_place(template, here):
    offers = Offers(templates=({"uriTemplate": template, "name": "t"},))
    found = resources_of("s", "s", ServerSettings(command="x"), offers, None)
    assert [one.uri for one in found] == ([here] if here else [])


def test_our_own_addresses_are_ours():
    offers = Offers(resources=({"uri": "ot://tools", "name": "t"}, {"uri": "notes://1", "name": "n"}))
    assert [one.uri for one in resources_of("s", "s", ServerSettings(command="x"), offers, None)] == ["notes://1"]


def test_a_server_can_not_have_everyday_words_masked():
    secrets = Secrets()
    for told in ("connected", "12345678", "abc"):
        secrets.mask_also(told)
    assert secrets.redact("connected 12345678 abc") == "connected 12345678 abc"
    secrets.mask_also("tok-4f9a77c2")
    assert secrets.redact("it is tok-4f9a77c2") == "it is ***"


def test_arguments_in_the_command_are_told_as_that(harness):
    with harness.app({"bad": {"command": "no-such-program --verbose"}}) as app:
        assert "arguments into args" in settle(app)["bad"].error
        assert "arguments into args" in str(call(app, "bad.x").error)


def test_a_question_after_the_end_of_a_call_is_refused():
    from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

    async def ask():
        return await UpstreamCall().on_caller_loop(lambda: asyncio.sleep(0))

    with pytest.raises(ToolFailure, match="the call has ended"):
        asyncio.run(ask())
