"""`approve: "ask"` of POST /ask: who may let a call run, what they see of it, and until when."""

import asyncio
import json
import re
from functools import partial
from pathlib import Path

import pytest
from ask.harness import KEY, Harness
from ask.stand_in import Fails, Says, Wants
from helpers import until
from interfaces.rest.ask.asgi_client import AsgiClient, person, users
from services.journals import lines_in

from onetool.interfaces.rest import ask_approvals
from onetool.interfaces.rest.ask_app import AskApp
from onetool.interfaces.rest.ask_approvals import APPROVAL_S
from onetool.sources.bundles.derived import bundle_id

PACK = '''
from pathlib import Path

def write(text: str, password: str = "") -> str:
    """Write it down."""
    with Path(__file__).with_name("written").open("a") as file:
        file.write(text + "\\\\n")
    return "written"
'''.replace("\\\\n", "\\n")

TWIN = '''
def writ\u0435(text: str) -> str:
    """Do something else."""
'''


def wants(*texts, **args):
    return Says(calls=[Wants("notes__write", {"text": text, **args}) for text in texts])


@pytest.fixture
def harness(tmp_path):
    with Harness(tmp_path, packs={"notes": PACK}) as running:
        running.model.will(wants("one"), "Done.")
        yield running
        assert not running.model.refused


def written(harness):
    file = Path(harness.folder) / "written"
    return file.read_text().split() if file.exists() else []


def run(work):
    return asyncio.run(work)


# What is asked, and what the answers do


@pytest.mark.parametrize("approve", [True, False])
def test_the_answer_is_in_the_audit_log(harness, approve):
    harness.app.journal.open()

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            await asgi_client.decide(await stream.next("approval"), approve)
            await stream.end()

    run(asked())
    harness.app.journal.audit.flush()
    found = lines_in(harness.app.config.home)
    noted = [(line["what"], line["outcome"]) for line in found if line["kind"] == "approval"]
    assert noted == [("notes.write", "approved" if approve else "declined")]


@pytest.mark.parametrize("approve", [True, False])
def test_a_call_waits_for_a_yes_and_a_no_does_not_run_it(harness, approve):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            assert written(harness) == []
            reply = await asgi_client.decide(told, approve)
            assert (reply.status, reply.body) == (204, b"")
            return stream, told, await stream.end()

    stream, told, last = run(asked())
    assert set(told) == {"type", "question", "call", "name", "args", "warnings", "expiresAt", "expiresInSeconds"}
    assert told["expiresInSeconds"] == APPROVAL_S
    assert (told["name"], told["args"], told["warnings"]) == ("notes.write", {"text": "one"}, [])
    assert re.fullmatch(r"[0-9a-f]{32}", told["question"])
    assert stream.events[0].data["question"] == told["question"]
    assert told["call"] == next(one.data["call"]["id"] for one in stream.events if one.name == "call")
    assert (last.name, last.data["answer"]["answer"]) == ("answer", "Done.")
    assert last.data["answer"]["denied"] == ([] if approve else ["notes.write"])
    assert written(harness) == (["one"] if approve else [])


@pytest.mark.parametrize("menu", ["direct", "run"])
def test_a_tool_that_is_switched_off_while_its_call_waits_does_not_run(harness, menu):
    if menu == "run":
        harness.model.will(Says(calls=[Wants("run", {"code": 'notes.write(text="one")'})]), "Done.")

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking(menu=menu) as stream:
            told = await stream.next("approval")
            bundles = harness.app.bundles
            await asyncio.to_thread(bundles.patch_tool, bundle_id("pack", "notes"), "write", "1", {"isEnabled": False})
            assert (await asgi_client.decide(told)).status == 204
            return stream, await stream.end()

    stream, last = run(asked())
    assert last.data["answer"]["answer"] == "Done."
    assert written(harness) == []
    assert "switched off" in json.dumps([one.data for one in stream.events if one.name == "result"])


def test_each_call_is_decided_by_itself_also_those_of_code(harness):
    code = 'notes.write(text="first")\ntry:\n    notes.write(text="second")\nexcept Exception:\n    pass\n1'
    harness.model.will(Says(calls=[Wants("run", {"code": code})]), "Done.")

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking(menu="run") as stream:
            one = await stream.next("approval")
            await asgi_client.decide(one)
            two = await stream.next("approval", 1)
            assert (two["args"], two["call"] != one["call"]) == ({"text": "second"}, True)
            assert (await asgi_client.decide(one, True)).status == 409  # a yes to one is not a yes to another
            await asgi_client.decide(two, False)
            return await stream.end()

    assert run(asked()).data["answer"]["answer"] == "Done."
    assert written(harness) == ["first"]


def test_the_stream_tells_what_came_of_calls_of_code(harness):
    code = f'notes.write(text="{KEY}", password="hunter2")\n'
    code += 'try:\n    notes.write(text="two")\nexcept Exception:\n    pass\n1'
    harness.model.will(Says(calls=[Wants("run", {"code": code})]), "Done.")

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking(menu="run") as stream:
            one = await stream.next("approval")
            await asgi_client.decide(one)
            first = await stream.next("result")
            assert written(harness) == [KEY]
            two = await stream.next("approval", 1)
            await asgi_client.decide(two, False)
            await stream.end()
            return one, two, first, [each.data for each in stream.events if each.name == "result"]

    one, two, first, results = run(asked())
    assert [each["call"]["id"] for each in results[:2]] == [one["call"], two["call"]]
    assert [each["call"]["name"] for each in results] == ["notes.write", "notes.write", "run"]
    assert (first["result"]["ok"], first["result"]["data"]) == (True, "written")
    assert KEY not in json.dumps(results)
    assert "hunter2" not in json.dumps(results[:2])
    assert results[1]["result"]["error"]["reason"] == "denied"


@pytest.mark.parametrize("how", ["denied", "stopped"])
def test_a_call_that_never_ran_is_told_as_that_also_later(harness, how):
    async def asked():
        asgi_client = person(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            if how == "denied":
                await asgi_client.decide(told, False)
            else:
                await asgi_client.send("DELETE", f"/ask/{told['question']}")
            await stream.end()
        return (await asgi_client.send("GET", "/ask/sessions/last")).json["messages"]

    messages = run(asked())
    (call,) = messages[1]["calls"]
    assert call["state"] == "not_run"
    assert "is unknown" not in call["result"]
    assert messages[-1]["end"] == ("answered" if how == "denied" else "stopped")


def test_a_question_that_failed_says_why_also_later(harness):
    harness.model.will(Fails(400, "nobody understands this"))

    async def asked():
        asgi_client = person(harness.app)
        async with asgi_client.asking() as stream:
            await stream.task
        return (await asgi_client.send("GET", "/ask/sessions/last")).json["messages"]

    (asked_,) = run(asked())
    assert (asked_["role"], asked_["end"]) == ("user", "failed")
    assert "nobody understands this" in asked_["why"]


def test_it_is_shown_whole_and_only_known_secrets_are_masked(harness):
    text = f"{KEY} \u202eevil p\u0430ypal {'x' * 100_000}"
    harness.model.will(wants(text, password="hunter2"), "Done.")

    async def asked():
        async with users(harness.app).asking() as stream:
            return stream, await stream.next("approval")

    stream, told = run(asked())
    assert told["args"] == {"text": text.replace(KEY, "***"), "password": "hunter2"}
    assert len(told["warnings"]) == 2
    assert "several alphabets" in told["warnings"][0]
    assert "are invisible" in told["warnings"][1]
    assert next(one.data["call"]["args"] for one in stream.events if one.name == "call")["password"] == "***"


def test_a_tool_whose_name_looks_like_another_is_told(tmp_path):
    with Harness(tmp_path, packs={"notes": PACK + TWIN}) as harness:
        harness.model.will(wants("one"), "Done.")

        async def asked():
            async with users(harness.app).asking() as stream:
                return await stream.next("approval")

        assert "this is not notes.writ\u0435, which looks like it: 'notes.write'" in run(asked())["warnings"][0]


def test_tools_that_only_read_are_not_asked_about(harness):
    harness.model.will(Says(calls=[Wants("time__now", {})]), "Noon.")

    async def asked():
        async with users(harness.app).asking() as stream:
            return await stream.end(), [one.name for one in stream.events]

    last, names = run(asked())
    assert (last.data["answer"]["answer"], "approval" in names) == ("Noon.", False)


def test_without_a_stream_it_is_refused_in_words(harness):
    reply = run(users(harness.app).send("POST", "/ask", {"prompt": "x", "approve": "ask"}))
    assert (reply.status, reply.json["code"], reply.json["pointer"]) == (400, "needs_stream", "/approve")
    assert "text/event-stream" in reply.json["detail"]
    assert harness.model.seen == []


# Who may decide


def _without_id(refused):
    """The body as text, without the id of the request."""
    return refused.body.decode().replace(refused.json["request_id"], "…")


def test_only_who_asked_may_decide_and_all_others_learn_nothing(harness):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            other = await asgi_client.decide(told, user="bob")
            unknown = await asgi_client.decide({**told, "question": "0" * 32})
            assert (other.status, _without_id(other)) == (unknown.status, _without_id(unknown))
            assert other.status == 404
            badly = await asgi_client.send("POST", f"/ask/{told['question']}/approvals/x", {"nonsense": 1}, user="bob")
            assert _without_id(badly) == _without_id(other)
            cancelled = await asgi_client.send("DELETE", f"/ask/{told['question']}", user="bob")
            assert (cancelled.status, _without_id(cancelled)) == (404, _without_id(other))
            assert (await asgi_client.decide({**told, "call": "other"})).status == 404
            from_tool = await asgi_client.decide(told, headers={"OneTool-Call": "1"})
            assert (from_tool.status, from_tool.json["code"]) == (403, "not_for_tools")
            await asyncio.sleep(0.1)
            assert written(harness) == []
            assert (await asgi_client.decide(told, False)).status == 204
            return await stream.end()

    assert run(asked()).data["answer"]["denied"] == ["notes.write"]
    assert written(harness) == []


def test_a_second_answer_is_too_late(harness):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            assert (await asgi_client.decide(told, False)).status == 204
            again = await asgi_client.decide(told, True)
            await stream.end()
            return again, await asgi_client.decide(told, True)

    again, afterwards = run(asked())
    assert (again.status, again.json["code"], afterwards.status) == (409, "decided", 404)
    assert written(harness) == []


@pytest.mark.parametrize("body", [{}, {"approve": "yes"}, {"approve": 1}, {"approve": True, "all": True}, True, None])
def test_an_answer_that_is_none_decides_nothing(harness, body):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            reply = await asgi_client.send("POST", f"/ask/{told['question']}/approvals/{told['call']}", body)
            assert (reply.status, written(harness)) == (400, [])
            assert (await asgi_client.decide(told, False)).status == 204

    run(asked())


def test_questions_have_ids_of_their_own(harness):
    harness.model.will(wants("one"))

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as first, asgi_client.asking() as second:
            one, two = await first.next("approval"), await second.next("approval")
            assert (await asgi_client.decide({"question": one["question"], "call": two["call"]})).status == 404
            return one["question"], two["question"]

    one, two = run(asked())
    assert one != two
    assert written(harness) == []


# Silence, leaving, cancelling


def test_silence_for_five_minutes_is_no(harness, monkeypatch):
    timers = []
    monkeypatch.setattr(ask_approvals, "time", lambda: 1_800_000_000.0)

    class Timer:
        is_off = False

        def cancel(self):
            self.is_off = True

    async def asked():
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def later(seconds, work, *args, **more):
            if seconds != APPROVAL_S:
                return call_later(seconds, work, *args, **more)
            timers.append((seconds, partial(work, *args), Timer()))
            return timers[-1][2]

        monkeypatch.setattr(loop, "call_later", later)
        asgi_client = AsgiClient(AskApp(harness.app))
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            ((seconds, work, timer),) = timers
            assert (seconds, timer.is_off) == (APPROVAL_S, False)
            work()
            late = await asgi_client.decide(told)
            return told, late, await stream.end(), timer

    told, late, last, timer = run(asked())
    assert APPROVAL_S == 300
    assert told["expiresAt"] == "2027-01-15T08:05:00Z"
    assert (late.status, timer.is_off) == (409, True)
    assert (last.name, last.data["answer"]["denied"]) == ("answer", ["notes.write"])
    assert written(harness) == []


def test_a_client_that_has_left_approves_nothing(harness):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
        return await asgi_client.decide(told)

    assert run(asked()).status == 404
    assert written(harness) == []


def test_a_cancelled_question_approves_nothing_and_its_stream_tells_it(harness):
    async def asked():
        asgi_client = person(harness.app)
        async with asgi_client.asking(session="s", newSession=True) as stream:
            told = await stream.next("approval")
            assert (await asgi_client.send("DELETE", f"/ask/{told['question']}")).status == 204
            assert (await asgi_client.decide(told)).status in (404, 409)
            last = await stream.end()
            assert (await asgi_client.send("DELETE", f"/ask/{told['question']}")).status == 404
            return last

    last = run(asked())
    assert (last.name, last.data["reason"]) == ("error", "interrupted")
    assert last.data["answer"]["sessionId"] == "s"
    assert written(harness) == []
    harness.model.will("Nothing was done.")
    assert harness.ask("Go on.", session="s").answer == "Nothing was done."


def test_a_yes_of_which_nothing_has_come_yet_ends_with_its_question(harness):
    async def asked():
        ask_app = AskApp(harness.app)
        async with AsgiClient(ask_app).asking() as stream:
            told = await stream.next("approval")
            question = ask_app._context.questions.get(told["question"], "")
            question.decide(told["call"], True)
            question.cancel()
            return await stream.end()

    assert run(asked()).data["reason"] == "interrupted"
    assert written(harness) == []


def test_a_question_without_approvals_can_be_cancelled_too(harness):
    harness.model.will(Says("One word after another.", pieces=20, delay=0.1))

    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking(approve="never") as stream:
            await stream.next("text")
            question = (await stream.next("started"))["question"]
            assert (await asgi_client.send("DELETE", f"/ask/{question}")).status == 204
            return await stream.end()

    assert run(asked()).data["reason"] == "interrupted"


def test_cancelling_is_no_change_of_what_is_stored(tmp_path):
    with Harness(tmp_path, packs={"notes": PACK}, http={"admin": False}) as harness:
        harness.model.will(wants("one"), "Done.")

        async def asked():
            asgi_client = users(harness.app)
            async with asgi_client.asking() as stream:
                told = await stream.next("approval")
                return await asgi_client.send("DELETE", f"/ask/{told['question']}")

        assert run(asked()).status == 204


def test_ids_of_questions_are_not_in_the_log(harness, caplog):
    async def asked():
        asgi_client = users(harness.app)
        async with asgi_client.asking() as stream:
            told = await stream.next("approval")
            await asgi_client.decide(told)
            await stream.end()
            return told

    caplog.set_level("INFO", logger="onetool.access")
    told = run(asked())
    lines = [json.dumps(one.fields) for one in caplog.records if hasattr(one, "fields")]
    assert any("/ask/***/approvals/" in line for line in lines)
    assert not any(told["question"] in line for line in lines)
    assert until(lambda: written(harness) == ["one"])
