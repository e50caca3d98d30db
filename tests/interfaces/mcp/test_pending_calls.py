"""Calls that wait for their client: how many, how long, and what becomes of them."""

import asyncio

import pytest
from helpers import forever, until_async
from hypothesis import given
from hypothesis import strategies as st
from interfaces.mcp.peers import ABLE, NEW, TASKS

from onetool.core.call import Declined, ForPerson
from onetool.core.errors import ToolFailure
from onetool.core.mcp_protocol import JsonRpcError
from onetool.core.principal import LOCAL_CALLER, Principal, is_admitted
from onetool.interfaces.mcp import pending_calls
from onetool.interfaces.mcp.client import ClientCaller, McpRequest, RemoteClient
from onetool.interfaces.mcp.pending_calls import FULL, MAX_PENDING, PendingCall, PendingCalls, binding_of, run_pausing

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ADA = {"name": {"action": "accept", "content": {"name": "Ada"}}}
ME = RemoteClient(revision=NEW, capabilities=ABLE, principal=Principal(owner="me"))


class Nobody:
    """A client that hears nothing."""

    def notify(self, method, params):
        pass

    async def request(self, method, params):
        raise AssertionError("in the new era a client takes no requests")


def question(key="name"):
    return ForPerson(key=key, message="Who?", schema=NAME)


def begun(work, answers=(), binding=b"", client=ME):
    """An pending that does this work."""
    pending = PendingCall(ClientCaller(client, Nobody(), None), binding, dict(answers))
    pending.start(work(pending))
    return pending


async def greeting(pending):
    answer = await pending.ask(question())
    return {"said": f"Hello, {answer['name']}!"}


async def endless(pending):
    await forever()


# Going on


def test_a_turn_ends_with_a_question_or_with_the_result():
    async def test():
        pending = begun(greeting)
        assert await pending.wait_for_pause()
        assert not pending.is_done
        assert list(pending.questions()) == ["name"]
        pending.take_answers(ADA)
        assert pending.questions() == {}
        assert await pending.wait_for_pause()
        assert pending.result() == {"said": "Hello, Ada!"}
        assert await pending.wait_for_pause()  # and stays so

    asyncio.run(test())


def test_a_turn_that_takes_too_long_ends_too():
    async def test():
        pending = begun(endless)
        assert not await pending.wait_for_pause(0.01)
        assert not pending.is_done
        pending.cancel()
        assert await pending.wait_for_pause()
        with pytest.raises(JsonRpcError, match="the call was cancelled"):
            pending.result()

    asyncio.run(test())


def test_questions_that_come_a_moment_apart_go_out_together():
    async def both(pending):
        async def later():
            await asyncio.sleep(0)
            return await pending.ask(question("other"))

        return {"answers": await asyncio.gather(pending.ask(question()), later())}

    async def test():
        pending = begun(both)
        await pending.wait_for_pause()
        assert set(pending.questions()) == {"name", "other"}
        pending.cancel()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("answer", "raised", "words"),
    [
        ({"action": "decline"}, Declined, "the person declined"),
        ({"action": "cancel"}, Declined, "the person cancelled"),
    ],
)
def test_a_no_reaches_the_one_who_asked(answer, raised, words):
    async def test():
        pending = begun(greeting)
        await pending.wait_for_pause()
        pending.take_answers({"name": answer})
        await pending.wait_for_pause()
        with pytest.raises(raised, match=words):
            pending.result()

    asyncio.run(test())


def test_answers_that_came_with_the_call_are_used_once():
    async def twice(pending):
        first = await pending.ask(question())
        return {"first": first, "second": await pending.ask(question())}

    async def test():
        pending = begun(twice, ADA)
        await pending.wait_for_pause()
        assert not pending.is_done
        assert list(pending.questions()) == ["name"]
        pending.cancel()

    asyncio.run(test())


def test_an_answer_that_came_with_the_call_and_can_not_be_used_is_asked_for():
    async def test():
        pending = begun(greeting, {"name": {"action": "accept", "content": {}}})
        await pending.wait_for_pause()
        assert list(pending.questions()) == ["name"]
        pending.cancel()

    asyncio.run(test())


def test_a_question_that_is_given_up_is_no_longer_asked():
    async def impatient(pending):
        try:
            await asyncio.wait_for(pending.ask(question()), 0.05)
        except TimeoutError:
            return {"said": "never mind"}

    async def test():
        pending = begun(impatient)
        await pending.wait_for_pause()
        assert pending.questions()
        await until_async(lambda: not pending.questions())
        assert pending.result() == {"said": "never mind"}

    asyncio.run(test())


# As a task


def test_a_task_tells_how_it_stands():
    async def test():
        pending = begun(greeting)
        await pending.wait_for_pause()
        told = pending.task(1000)
        assert (told["status"], list(told["inputRequests"])) == ("input_required", ["name"])
        pending.take_answers(ADA)
        assert pending.task(1000)["status"] == "working"
        await pending.wait_for_pause()
        told = pending.task(1000)
        assert (told["status"], told["result"]) == ("completed", {"said": "Hello, Ada!"})
        assert told["createdAt"] <= told["lastUpdatedAt"]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (JsonRpcError(-32021, "lacking", {"d": 1}), {"code": -32021, "message": "lacking", "data": {"d": 1}}),
        (ZeroDivisionError("secret"), {"code": -32603, "message": "internal error"}),
        (ToolFailure("secret"), {"code": -32603, "message": "internal error"}),
    ],
)
def test_a_task_that_fails_says_what_it_may(error, told):
    async def failing(pending):
        raise error

    async def test():
        pending = begun(failing)
        await pending.wait_for_pause()
        assert pending.task(1000)["status"] == "failed"
        assert pending.task(1000)["error"] == told

    asyncio.run(test())


# Waiting


def test_after_some_time_nobody_waits_any_more(monkeypatch):
    monkeypatch.setattr(pending_calls, "PARKED_SECONDS", 0.05)

    async def test():
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        state = waiting.keep(pending)
        await until_async(lambda: pending.is_done)  # and does nothing any more
        with pytest.raises(JsonRpcError, match="requestState has expired"):
            waiting.resume(state, ME, b"")
        assert waiting.has_room_for(ME.principal)

    asyncio.run(test())


def test_who_answers_in_time_is_not_ended_by_the_clock_of_the_question(monkeypatch):
    monkeypatch.setattr(pending_calls, "PARKED_SECONDS", 0.05)

    async def test():
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        assert waiting.resume(waiting.keep(pending), ME, b"") is pending
        await asyncio.sleep(0.1)
        assert not pending.is_done
        pending.take_answers(ADA)
        await pending.wait_for_pause()
        assert pending.result() == {"said": "Hello, Ada!"}

    asyncio.run(test())


def test_tasks_end_after_their_time():
    async def test():
        waiting = PendingCalls(0.05)
        pending = begun(endless)
        id = waiting.as_task(pending)["taskId"]
        assert waiting.task(id, ME) is pending
        await until_async(lambda: pending.is_done)
        with pytest.raises(JsonRpcError, match="unknown or expired task"):
            waiting.task(id, ME)

    asyncio.run(test())


@pytest.mark.parametrize("kind", ["question", "task"])
def test_what_waits_ends_when_its_caller_is_no_longer_let_in(monkeypatch, kind):
    monkeypatch.setattr(pending_calls, "LOOK_SECONDS", 0.01)
    admitted = [True]

    async def test():
        is_admitted.set(lambda: admitted[0])
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        waiting.keep(pending) if kind == "question" else waiting.as_task(pending)
        await asyncio.sleep(0.05)
        assert not pending.is_done
        admitted[0] = False
        async with asyncio.timeout(10):
            while not pending.is_done:
                await asyncio.sleep(0.01)
        assert waiting._by_id == {}
        waiting.close()

    asyncio.run(test())


def test_a_call_goes_on_with_another_token_that_may_the_same():
    async def test():
        waiting, other = PendingCalls(1000), Principal(owner="me", tools=("time.*",))
        is_admitted.set(lambda: False)
        pending = begun(greeting)
        await pending.wait_for_pause()
        id = waiting.as_task(pending)["taskId"]
        is_admitted.set(lambda: True)
        waiting.task(id, RemoteClient(revision=NEW, principal=other))
        assert not pending.is_admitted()  # it may less than who began
        waiting.task(id, ME)
        assert pending.is_admitted()
        waiting.close()

    asyncio.run(test())


def test_an_answer_of_who_may_less_by_now_does_not_resume_the_call():
    async def test():
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        state = waiting.keep(pending)
        other = RemoteClient(revision=NEW, principal=Principal(owner="me", tools=("time.*",)))
        with pytest.raises(JsonRpcError, match="requestState has expired"):
            waiting.resume(state, other, b"")
        await until_async(lambda: pending.is_done)
        waiting.close()

    asyncio.run(test())


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("many", [Principal(name="ada", owner="ada"), Principal(owner=LOCAL_CALLER)])
def test_a_caller_with_all_places_leaves_others_theirs(many):
    async def test():
        waiting = PendingCalls(1000)
        many_client = RemoteClient(revision=NEW, capabilities=ABLE, principal=many)

        async def begin(client):
            pending = begun(greeting, client=client)
            await pending.wait_for_pause()
            return waiting.keep(pending)

        for _ in range(MAX_PENDING):
            await begin(many_client)
        for _ in range(MAX_PENDING // 2):
            await begin(ME)
        for client in (ME, many_client):
            with pytest.raises(JsonRpcError, match="waiting for an answer"):
                await begin(client)
        waiting.close()

    asyncio.run(test())


@pytest.mark.attack("other callers")
def test_nobody_s_question_ends_for_a_caller_that_asks_more(monkeypatch):
    """Without room, the oldest question of the caller with the most of them ends, if its client may be gone."""
    monkeypatch.setattr(pending_calls, "EVICTABLE_SECONDS", 0)

    async def test():
        waiting = PendingCalls(1000)
        ada = RemoteClient(revision=NEW, capabilities=ABLE, principal=Principal(name="ada", owner="ada"))
        kept = []
        for client in (ME, *[ada] * (MAX_PENDING + 10)):
            kept.append(begun(greeting, client=client))
            await kept[-1].wait_for_pause()
            waiting.keep(kept[-1])
        await asyncio.sleep(0)
        assert [one.is_done for one in kept] == [False, *[True] * 11, *[False] * (MAX_PENDING - 1)]
        waiting.close()

    asyncio.run(test())


def test_what_waits_belongs_to_its_owner():
    async def test():
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        state, other = waiting.keep(pending), RemoteClient(revision=NEW, principal=Principal(owner="other"))
        with pytest.raises(JsonRpcError, match="requestState has expired"):
            waiting.resume(state, other, b"")
        id = waiting.as_task(pending)["taskId"]
        with pytest.raises(JsonRpcError, match="unknown or expired task"):
            waiting.task(id, other)
        assert waiting.task(id, ME) is pending
        waiting.close()

    asyncio.run(test())


def test_a_call_that_waits_for_an_answer_is_no_task():
    async def test():
        waiting = PendingCalls(1000)
        pending = begun(greeting)
        await pending.wait_for_pause()
        waiting.keep(pending)
        with pytest.raises(JsonRpcError, match="unknown or expired task"):
            waiting.task(pending.id, ME)
        waiting.close()

    asyncio.run(test())


def test_so_many_wait_and_no_more():
    async def test():
        waiting = PendingCalls(1000)
        for _ in range(MAX_PENDING):
            pending = begun(greeting)
            await pending.wait_for_pause()
            state = waiting.keep(pending)
        assert not waiting.has_room_for(ME.principal)
        one_more = begun(greeting)
        await one_more.wait_for_pause()
        with pytest.raises(JsonRpcError, match=f"{MAX_PENDING} calls are already waiting for an answer"):
            waiting.keep(one_more)
        await one_more.wait_for_pause()
        assert one_more.is_done  # it holds nothing any more
        assert waiting.resume(state, ME, b"") is pending
        waiting.keep(pending)
        waiting.close()
        assert waiting.has_room_for(ME.principal)
        await asyncio.sleep(0)
        assert pending.is_done

    asyncio.run(test())


def test_the_same_on_the_wire(stdio_peer):
    peer = stdio_peer("new", "--menu", "direct")
    call = {"name": "asking__name"}
    states = [peer.result("tools/call", call)["requestState"] for _ in range(MAX_PENDING)]
    refused = peer.error("tools/call", call)
    assert (refused["code"], refused["message"]) == (-32603, FULL)
    assert peer.text("plus", {"a": 1}) == "1"
    done = peer.result("tools/call", {**call, "inputResponses": ADA, "requestState": states[7]})
    assert done["content"][0]["text"] == "Hello, Ada!"
    assert peer.result("tools/call", call)["resultType"] == "input_required"


def test_where_there_is_no_room_for_a_task_the_call_is_waited_for(stdio_peer, tmp_path):
    peer = stdio_peer("new", "--menu", "direct", capabilities={**ABLE, "extensions": {TASKS: {}}})
    for _ in range(MAX_PENDING):
        peer.result("tools/call", {"name": "asking__name"})
    slow = peer.begin("tools/call", {"name": "jobs__failing_job"})
    assert slow.answer()["result"]["content"][0]["text"] == "Error: the job failed"


# The same request


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_the_order_of_members_does_not_make_another_request(arguments):
    turned = dict(reversed(arguments.items()))
    one = binding_of("tools/call", {"name": "x", "arguments": {"deep": arguments}})
    assert one == binding_of("tools/call", {"arguments": {"deep": turned}, "name": "x", "_meta": {}, "requestState": 1})


def test_everything_else_does():
    params = {"name": "x", "arguments": {"a": 1}}
    others = [
        binding_of("prompts/get", params),
        binding_of("tools/call", {"name": "y", "arguments": {"a": 1}}),
        binding_of("tools/call", {"name": "x", "arguments": {"a": True}}),
        binding_of("tools/call", {"name": "x", "arguments": {"a": "1"}}),
        binding_of("tools/call", {"name": "x", "arguments": {}}),
        binding_of("tools/call", {"name": "x"}),
        binding_of("tools/call", {"name": "x", "arguments": {"a": 1}, "more": None}),
        binding_of("tools/call", {"name": "\ud800", "arguments": {"a": 1}}),
    ]
    assert binding_of("tools/call", params) not in others
    assert len(set(others)) == len(others)


# The same answer again


async def answered(kept, client, state):
    params = {"name": "x", "requestState": state, "inputResponses": ADA}
    request = McpRequest(id=1, method="tools/call", params=params, client=client, channel=Nobody())
    return await run_pausing(request, greeting, kept)


def test_the_outcome_is_only_for_those_with_the_same_rights():
    async def test():
        kept, binding = PendingCalls(60), binding_of("tools/call", {"name": "x"})
        pending = begun(greeting, binding=binding)
        await pending.wait_for_pause()
        state = kept.keep(pending)
        assert await answered(kept, ME, state) == await answered(kept, ME, state) == {"said": "Hello, Ada!"}
        fewer = RemoteClient(revision=NEW, capabilities=ABLE, principal=Principal(owner="me", tools=("y",)))
        with pytest.raises(JsonRpcError, match="has expired"):
            await answered(kept, fewer, state)

    asyncio.run(test())


def test_callers_who_ask_nothing_more_take_no_memory():
    kept = PendingCalls(60)
    with kept.asking(ME.principal):
        assert kept._asking == {ME.principal.caller: 1}
    assert dict(kept._asking) == {}
