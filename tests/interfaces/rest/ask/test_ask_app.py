"""`POST /ask` without a model: what is taken, what is refused and how, and what a stream does with a slow client."""

import asyncio
import re
from pathlib import Path
from typing import get_args

import pytest
from helpers import FakeClock, each
from interfaces.rest.ask.fakes import ANSWER, STARTED, App, failing, post

from onetool.ask.errors import ModelError, Reason
from onetool.ask.events import CallEnded, CallStarted, Done, Event, Notice, Text
from onetool.ask.messages import File
from onetool.core.call import ToolCall, ToolResult
from onetool.core.principal import allowed_by_both, owner
from onetool.http.response_stream import MAX_UNSENT
from onetool.interfaces.rest import ask_app as door_module
from onetool.interfaces.rest.ask_app import MAX_AT_ONCE, AskApp
from onetool.interfaces.rest.ask_body import PROVIDER_STATUS, STATUS_OF_REASON, AskQuestion

EVENTS = "text/event-stream"
CALL = ToolCall("c1", "time.now", {}, "ask")
PICTURE = {"name": "a.png", "kind": "image/png", "data": "iVBORw0KGgo="}


def run(*args, **options):
    return asyncio.run(post(*args, **options))


def problem(client, status, code):
    assert client.headers["content-type"] == "application/problem+json"
    told = client.json
    assert (client.status, told["status"], told["code"]) == (status, status, code), told
    assert client.log == {"error": code}
    return told


# What is taken


def test_an_answer_is_one_object_with_all_members():
    client = run(App(), {"prompt": "What time is it?"})
    assert (client.status, client.headers["content-type"]) == (200, "application/json")
    assert client.json == {
        "answer": "Noon.",
        "toolCalls": [],
        "toolResults": [],
        "toolError": None,
        "sessionContextUpdated": False,
        "sessionId": "s1",
        "provider": "openai",
        "model": "m",
        "usage": {"input": 0, "output": 0, "cached": 0},
        "steps": 1,
        "stop": "end",
        "limitReached": False,
        "denied": [],
        "hints": [],
        "error": None,
    }


def test_who_says_nothing_gets_what_the_config_says_and_nothing_that_changes_anything():
    app = App()
    run(app, {"prompt": "x"})
    assert app.asked == [
        (
            "x",
            {
                "allowed": None,
                "within": None,
                "session": None,
                "new_session": False,
                "with_tools": None,
                "provider": None,
                "model": None,
                "system": None,
                "temperature": None,
                "max_steps": None,
                "menu": None,
                "approve": "never",
                "files": (),
            },
        )
    ]


def test_every_key_arrives():
    app = App()
    body = {
        "prompt": "x",
        "session": "s-1",
        "newSession": True,
        "withTools": False,
        "toolAllow": ["time.now"],
        "provider": "ollama",
        "model": "llama",
        "system": "Be brief.",
        "temperature": 1,
        "maxSteps": 3.0,
        "menu": "run",
        "approve": "always",
        "files": [{"name": "a.txt", "text": ""}, PICTURE],
    }
    assert run(app, body).status == 200
    ((_, options),) = app.asked
    assert options == {
        "allowed": ("time.now",),
        "within": None,
        "session": "s-1",
        "new_session": True,
        "with_tools": False,
        "provider": "ollama",
        "model": "llama",
        "system": "Be brief.",
        "temperature": 1.0,
        "max_steps": 3,
        "menu": "run",
        "approve": "always",
        "files": (File(name="a.txt", text=""), File(name="a.png", kind="image/png", data="iVBORw0KGgo=")),
    }


@each(
    ("servers", "clients", "allowed"),
    [
        (None, None, None),
        (None, [], []),
        (["a"], None, ["a"]),
        (["a", "b"], ["b", "c"], ["b"]),
        ([], ["a"], []),
    ],
)
def test_a_client_can_only_narrow_what_the_server_allows(servers, clients, allowed):
    app = App()
    run(AskApp(app, servers), {"prompt": "x", "toolAllow": clients})
    given = allowed_by_both(app.asked[0][1]["within"], app.asked[0][1]["allowed"])
    assert given is None if allowed is None else sorted(given) == allowed


def test_stored_results_belong_to_who_asks():
    owners = []

    class Noted(App):
        def ask(self, prompt, **options):
            owners.append(owner())
            return super().ask(prompt, **options)

    run(Noted(), {"prompt": "x"})
    assert owners == ["p1"]


# What is refused before anybody is asked


@each(
    ("body", "pointer", "words"),
    [
        ({}, "/prompt", "missing"),
        ({"prompt": ""}, "/prompt", "must not be empty"),
        ({"prompt": " \u00a0\n"}, "/prompt", "must not be blank"),
        ({"prompt": 1}, "/prompt", "expected a string, got the number 1"),
        ({"prompt": "x", "sesion": "a"}, "/sesion", "did you mean session"),
        ({"prompt": "x", "baseUrl": "http://evil.example"}, "/baseUrl", "no such key"),
        ({"prompt": "x", "base_url": "http://evil.example"}, "/base_url", "no such key"),
        ({"prompt": "x", "session": "../up"}, "/session", "can't be the name of a session"),
        ({"prompt": "x", "session": "a\n"}, "/session", "can't be the name of a session"),
        ({"prompt": "x", "session": "last", "newSession": True}, "/session", "choose another name"),
        ({"prompt": "x", "withTools": "yes"}, "/withTools", "expected true or false, got the string 'yes'"),
        (
            {"prompt": "x", "toolAllow": "time.now"},
            "/toolAllow",
            "expected a list of strings or null, got the string 'time.now'",
        ),
        ({"prompt": "x", "toolAllow": ["a", 1]}, "/toolAllow/1", "expected a string, got the number 1"),
        ({"prompt": "x", "toolAllow": ["a.b"] * 1001}, "/toolAllow", "must have at most 1000 items"),
        ({"prompt": "x", "toolAllow": ["a.*"] * 51}, "/toolAllow", "at most 50 patterns"),
        ({"prompt": "x", "toolAllow": ["*a" * 5]}, "/toolAllow", "at most 4 stars"),
        ({"prompt": "x", "toolAllow": ["a", "b" * 201]}, "/toolAllow/1", "must have at most 200 characters"),
        ({"prompt": "x", "provider": "openia"}, "/provider", "did you mean openai"),
        ({"prompt": "x", "temperature": 2.5}, "/temperature", "must be from 0 to 2"),
        ({"prompt": "x", "maxSteps": 0}, "/maxSteps", "must be from 1 to 1000"),
        ({"prompt": "x", "menu": "search"}, "/menu", "not one of direct, run"),
        ({"prompt": "x", "approve": "maybe"}, "/approve", "not one of always, ask, never"),
        ({"prompt": "x", "files": [{"name": "a"}]}, "/files/0", "neither is given"),
        ({"prompt": "x", "files": [{**PICTURE, "text": "a"}]}, "/files/0", "both are given"),
        ({"prompt": "x", "files": [PICTURE, {"text": "a"}]}, "/files/1", "`name`"),
        ({"prompt": "x", "files": [{**PICTURE, "kind": "audio/mp3"}]}, "/files/0/kind", "image/png"),
        ({"prompt": "x", "files": [{"name": "a", "data": "aaaa"}]}, "/files/0/kind", "is missing"),
        ({"prompt": "x", "files": [{**PICTURE, "data": "a b="}]}, "/files/0/data", "expected base64"),
        ({"prompt": "x", "files": [{**PICTURE, "nme": 1}]}, "/files/0/nme", "did you mean name"),
        ([], "", "expected an object, got an empty list"),
        (None, "", "expected an object, got null"),
    ],
)
def test_what_can_not_be_used_is_said_with_its_place(body, pointer, words):
    app = App()
    told = problem(run(app, body, EVENTS), 400, "invalid")
    assert (told["in"], told["pointer"]) == ("body", pointer)
    assert words in told["detail"]
    assert app.asked == []


def test_of_many_names_that_are_no_tools_a_few_are_told():
    hints = run(App(), {"prompt": "x", "toolAllow": [f"no.{place}" for place in range(1000)]}).json["hints"]
    assert len(hints) == 11
    assert (hints[9], hints[10]) == ("toolAllow matches no tool: no.9", "toolAllow names 990 more unknown tools")


def test_other_things_that_are_wrong_with_a_request():
    problem(run(App(), b"{"), 400, "bad_json")
    problem(run(App(), b""), 400, "bad_json")
    problem(run(App(), b'{"prompt": "x", "prompt": "y"}'), 400, "bad_json")
    problem(run(App(), {"prompt": "x"}, kind="text/plain"), 415, "unsupported_media_type")
    problem(run(App(), {"prompt": "x"}, query=b"prompt=y"), 400, "unknown_parameter")


# What fails


@each("accept", ["*/*", EVENTS])
@each("reason", Reason.__args__)
def test_every_reason_has_a_status_with_and_without_a_stream(reason, accept):
    client = run(App(failing(reason, "try `onetool auth set openai`")), {"prompt": "x"}, accept)
    told = problem(client, STATUS_OF_REASON.get(reason, PROVIDER_STATUS), reason)
    assert told["detail"] == "it failed with ***, try toolAllow"
    assert told["hints"] == ["try `onetool auth set openai`"]
    assert "answer" not in told


def test_what_was_done_before_it_failed_comes_with_the_problem():
    script = [STARTED, CallStarted(call=CALL), CallEnded(call=CALL, result=ToolResult(ok=True)), failing("unreachable")]
    told = problem(run(App(*script), {"prompt": "x"}), 502, "unreachable")
    assert (told["answer"]["sessionId"], told["answer"]["answer"]) == ("s1", None)
    assert told["answer"]["error"] == {"reason": "***"}


def test_when_to_try_again_is_told_where_it_is_known():
    limited = failing("rate_limited", kind=ModelError, wait=2.2)
    assert run(App(limited), {"prompt": "x"}).headers["retry-after"] == "3"
    overloaded = failing("overloaded", kind=ModelError, wait=0.0)
    assert run(App(overloaded), {"prompt": "x"}).headers["retry-after"] == "1"
    assert "retry-after" not in run(App(failing("overloaded", kind=ModelError)), {"prompt": "x"}).headers


def test_a_model_or_a_session_that_the_client_named_is_its_own_mistake():
    told = problem(run(App(failing("model_not_found")), {"prompt": "x", "model": "gpt"}), 400, "model_not_found")
    assert told["pointer"] == "/model"
    told = problem(run(App(failing("busy")), {"prompt": "x", "session": "s"}), 409, "busy")
    assert (told["in"], told["pointer"]) == ("body", "/session")
    assert "pointer" not in problem(run(App(failing("busy")), {"prompt": "x"}), 409, "busy")


def test_so_many_at_once_and_no_more():
    async def many():
        asgi_client, leaving = AskApp(App(STARTED, 5.0)), asyncio.Event()
        asked = [
            asyncio.create_task(post(asgi_client, {"prompt": "x"}, EVENTS if n % 2 else "", leaving=leaving))
            for n in range(MAX_AT_ONCE)
        ]
        await asyncio.sleep(0.05)
        refused = await post(asgi_client, {"prompt": "x"})
        leaving.set()
        await asyncio.gather(*asked)
        asgi_client._context.app.script = App().script
        return refused, await post(asgi_client, {"prompt": "x"})

    refused, after = asyncio.run(many())
    assert problem(refused, 503, "too_many")["detail"].startswith(f"{MAX_AT_ONCE} questions")
    assert refused.headers["retry-after"] == str(door_module.RETRY_S)
    assert after.status == 200


# Streams


def test_events_have_their_tags_as_names_and_end_with_the_answer():
    ended = CallEnded(call=CALL, result=ToolResult(ok=True, data={"iso": "…", "big": 10**30}))
    script = [STARTED, Text(text="a\nb", step=1), CallStarted(call=CALL), ended, Notice(text="by the way")]
    client = run(App(*script, Done(answer=ANSWER)), {"prompt": "x"}, EVENTS)
    assert (client.status, client.headers["content-type"]) == (200, EVENTS)
    assert [event.name for event in client.events] == ["started", "text", "call", "result", "notice", "answer"]
    assert client.events[0].data == {
        "question": client.events[0].data["question"],
        "type": "started",
        "sessionId": "s1",
        "isNew": True,
        "provider": "openai",
        "model": "m",
    }
    assert client.events[1].data == {"type": "text", "text": "a\nb", "step": 1}
    assert client.events[3].data["result"]["data"]["big"] == 10**30
    assert client.events[-1].data["answer"] == run(App(), {"prompt": "x"}).json


def test_what_fails_later_is_the_last_event():
    script = [STARTED, Text(text="a", step=1), failing("timeout", "wait")]
    client = run(App(*script), {"prompt": "x"}, EVENTS)
    assert client.status == 200
    assert [event.name for event in client.events] == ["started", "text", "error"]
    data = client.events[-1].data
    assert list(data) == ["type", "reason", "message", "hints", "answer"]
    assert (data["reason"], data["message"], data["hints"]) == (
        "timeout",
        "it failed with ***, try toolAllow",
        ["wait"],
    )
    assert data["answer"]["sessionId"] == "s1"
    assert client.log == {"error": "timeout"}


def test_a_stream_begins_while_the_model_still_thinks():
    async def begun():
        leaving = asyncio.Event()
        asked = asyncio.create_task(post(App(STARTED, 5.0), {"prompt": "x"}, EVENTS, leaving=leaving))
        await asyncio.sleep(0.4)
        leaving.set()
        return await asked

    assert [event.name for event in FakeClock().run(begun()).events] == ["started"]


@pytest.mark.parametrize("accept", ["*/*", EVENTS])
def test_a_client_that_leaves_ends_it(accept):
    async def left():
        app, leaving = App(STARTED, 5.0), asyncio.Event()
        asked = asyncio.create_task(post(app, {"prompt": "x"}, accept, leaving=leaving))
        await asyncio.sleep(0.15)
        leaving.set()
        await asked
        return app.asking.ended

    assert FakeClock().run(left()) == "cancelled"


def test_a_server_that_stops_ends_it_too():
    async def stopped():
        app = App(STARTED, 5.0)
        asked = asyncio.create_task(post(app, {"prompt": "x"}, EVENTS))
        await asyncio.sleep(0.05)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return app.asking.ended

    assert FakeClock().run(stopped()) == "cancelled"


def test_a_slow_reader_gets_everything_and_the_model_waits_for_it():
    piece = "x" * 10_000
    count = 3 * MAX_UNSENT // len(piece)

    async def slow():
        app, reading = App(STARTED, *[Text(text=piece, step=1)] * count, Done(answer=ANSWER)), asyncio.Event()
        asked = asyncio.create_task(post(app, {"prompt": "x"}, EVENTS, reading=reading))
        await asyncio.sleep(0.1)
        told = app.asking.told
        reading.set()
        return told, await asked

    told, client = FakeClock().run(slow())
    assert 1 < told <= MAX_UNSENT // len(piece) + 2
    assert [event.name for event in client.events] == ["started", *["text"] * count, "answer"]


def test_a_slow_reader_that_leaves_ends_it():
    async def left():
        script = [STARTED, *[Text(text="x" * 100_000, step=1)] * 30, Done(answer=ANSWER)]
        app, leaving = App(*script), asyncio.Event()
        asked = asyncio.create_task(post(app, {"prompt": "x"}, EVENTS, reading=asyncio.Event(), leaving=leaving))
        await asyncio.sleep(0.15)
        leaving.set()
        await asked
        return app.asking

    asking = FakeClock().run(left())
    assert asking.ended == "early"
    assert asking.told < 20


def test_a_bug_leaves_nothing_behind():
    async def broken():
        with pytest.raises(RuntimeError):
            await post(App(STARTED, Text(text="a", step=1), RuntimeError("a bug")), {"prompt": "x"}, EVENTS)
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(broken()) == set()


# The docs


MORE = ("error", "too_many", "too_large", "approval", "needs_stream", "decided", "question", "warnings", "expiresAt")


def test_the_docs_know_every_key_event_and_reason():
    pages = Path(__file__).parents[4] / "docs"
    docs = (pages / "reference" / "rest.md").read_text() + (pages / "operate" / "serve.md").read_text()
    section = docs.partition("\n## Asking a model\n")[2].partition("\n## ")[0]
    events = [kind.__struct_config__.tag for kind in get_args(Event)]
    for word in (
        *AskQuestion.__struct_encode_fields__,
        *events,
        *Reason.__args__,
        "error",
        "too_many",
        "too_large",
        *MORE,
    ):
        assert f"`{word}`" in section, word
    for reason, status in STATUS_OF_REASON.items():
        assert re.search(rf"^\|[^|]*\b{status}\b[^|]*\|.*`{reason}`", section, re.MULTILINE), reason
    assert f"under way | {MAX_AT_ONCE} | 503 |" in docs
