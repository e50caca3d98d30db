"""Messages between processes: each is handled once, and answered only by who has the key."""

import asyncio
import time
from contextlib import contextmanager

import pytest

from onetool.cluster import ClusterSettings, mailbox, members
from onetool.cluster.mailbox import Mailbox, ProcessGoneError
from onetool.cluster.members import Members
from onetool.core.mcp_protocol import (
    AWAY,
    CLIENT_CAPABILITIES,
    INTERNAL_ERROR,
    PROTOCOL_VERSION,
    STATELESS_REVISIONS,
    JsonRpcError,
)
from onetool.core.principal import Principal
from onetool.database import DatabaseAwayError
from onetool.http.asgi import HttpError
from onetool.interfaces.mcp import http
from onetool.interfaces.mcp.http import StatelessMcp

pytestmark = pytest.mark.attack("replicas")

ADA = Principal(name="ada", role="call")


@contextmanager
def processes(shared, *keys):
    """Two of them with their mailboxes, not yet started."""
    made = []
    for name, key in zip("ab", keys or (b"k", b"k"), strict=True):
        found = Members(ClusterSettings(name, key, shared))
        found.start()
        made.append(Mailbox(shared, found, [key]))
    for one in made:
        one._members._beat()  # each knows the other
    try:
        yield made
    finally:
        for one in made:
            one._members.close()


def run(shared, test, *keys):
    """Run `test(a, b)` with two mailboxes that handle messages."""

    async def go():
        for one in made:
            one.start()
        try:
            async with asyncio.timeout(30):
                return await test(*made)
        finally:
            for one in made:
                await one.close()

    with processes(shared, *keys) as made:
        return asyncio.run(go())


def rows(shared, sql="SELECT id, receiver, body, outcome FROM messages", params=()):
    return shared.read(lambda work: work.execute(sql, params))


def id_of(box):
    return box._members.id


def test_a_message_is_handled_and_its_outcome_returned(shared):
    async def test(a, b):
        async def double(body):
            return {"twice": body["x"] * 2}

        b.handlers["double"] = double
        assert await a.ask(id_of(b), "double", {"x": "é\0"}, ADA) == {"twice": "é\0é\0"}

    run(shared, test)
    ((_, _, body, outcome),) = rows(shared)
    for sealed in (bytes(body), bytes(outcome)):
        assert b"twice" not in sealed
        assert b"ada" not in sealed


def test_a_refusal_is_passed_on(shared):
    async def test(a, b):
        async def refuse(body):
            raise HttpError(409, "decided", "It was decided.")

        async def fail(body):
            raise ValueError("secret")

        b.handlers |= {"refuse": refuse, "fail": fail}
        with pytest.raises(HttpError, match="It was decided") as caught:
            await a.ask(id_of(b), "refuse", None, ADA)
        assert (caught.value.status, caught.value.code) == (409, "decided")
        with pytest.raises(HttpError) as caught:
            await a.ask(id_of(b), "fail", None, ADA)
        assert (caught.value.status, "secret" in str(caught.value)) == (500, False)
        with pytest.raises(HttpError) as caught:
            await a.ask(id_of(b), "unheard-of", None, ADA)
        assert caught.value.status == 404

    run(shared, test)


def test_the_same_message_is_handled_once(shared):
    handled = []

    async def test(a, b):
        async def note(body):
            handled.append(body)
            await asyncio.sleep(0.3)
            return len(handled)

        b.handlers["note"] = note
        again = [a.ask(id_of(b), "note", "x", ADA, id="the same") for _ in range(3)]
        assert await asyncio.gather(*again) == [1, 1, 1]
        assert await a.ask(id_of(b), "note", "x", ADA, id="the same") == 1  # later, too

    run(shared, test)
    assert handled == ["x"]


def test_a_message_that_ends_during_a_look_is_not_handled_again(shared):
    handled = []

    async def test(a, b):
        read, seen = b._received, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(work, known):
            found = read(work, known)
            if handled:  # the message is being handled, and ends before this look does
                loop.call_soon_threadsafe(seen.set)
                time.sleep(0.5)
            return found

        async def note(body):
            handled.append(body)
            b._woken.set()
            await seen.wait()

        b._received, b.handlers["note"] = slow, note
        await a.ask(id_of(b), "note", "x", ADA)
        await asyncio.sleep(1)

    run(shared, test)
    assert handled == ["x"]


def test_the_caller_is_checked_by_who_handles_it(shared):
    async def test(a, b):
        @contextmanager
        def admit(principal, address):
            if principal.name != "ada":
                raise HttpError(401, "unauthorized", "Who?")
            yield

        async def fine(body):
            return "fine"

        b.admit = admit
        b.handlers["x"] = fine
        assert await a.ask(id_of(b), "x", None, ADA) == "fine"
        with pytest.raises(HttpError, match=r"Who\?"):
            await a.ask(id_of(b), "x", None, Principal(name="bob", role="call"))

    run(shared, test)


def test_who_gives_up_cancels_it_there(shared):
    async def test(a, b):
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def wait(body):
            began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        b.handlers["wait"] = wait
        asking = asyncio.create_task(a.ask(id_of(b), "wait", None, ADA))
        await began.wait()
        asking.cancel()
        await cancelled.wait()

    run(shared, test)


def test_a_message_is_held_while_the_database_is_away(shared, monkeypatch):
    write, away = shared.write, [True]

    def writing(job, **options):
        if away:
            raise DatabaseAwayError
        return write(job, **options)

    async def test(a, b):
        async def fine(body):
            return "fine"

        b.handlers["x"] = fine
        monkeypatch.setattr(shared, "write", writing)
        asking = asyncio.create_task(a.ask(id_of(b), "x", None, ADA))
        await asyncio.sleep(1.5)
        assert not asking.done()
        away.clear()
        assert await asking == "fine"
        away.append(True)
        monkeypatch.setattr(mailbox, "HELD_S", 0.1)
        with pytest.raises(HttpError) as caught:
            await a.ask(id_of(b), "x", None, ADA)
        assert (caught.value.status, caught.value.code) == (503, "database_away")
        monkeypatch.setattr(shared, "write", write)

    run(shared, test)


def test_a_process_is_silent_before_it_is_gone(shared, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 60.0)

    async def test(a, b):
        def age(seconds):
            sql = f"UPDATE replicas SET seen_at = {shared.clock} - %s WHERE id = %s"
            shared.write(lambda work: work.execute(sql, (seconds, id_of(b))))

        async def fine(body):
            return "fine"

        b.handlers["x"] = fine
        stopped, b._looking = b._looking, None
        stopped.cancel()
        asking = asyncio.create_task(a.ask(id_of(b), "x", None, ADA, id="it"))
        await asyncio.sleep(0.2)
        age(10)
        a._members._alive.pop(id_of(b))
        with pytest.raises(HttpError) as caught:
            await asking
        assert (caught.value.status, caught.value.code) == (503, "no_answer")
        b.start()  # it was only cut off
        age(0)
        assert await a.ask(id_of(b), "x", None, ADA, id="it") == "fine"
        age(40)
        with pytest.raises(ProcessGoneError):
            await a.ask(id_of(b), "x", None, ADA, id="another")

    run(shared, test)


def test_what_nobody_with_the_key_has_written_does_nothing(shared):
    handled = []

    async def test(a, b):
        async def note(body):
            handled.append(body)

        b.handlers["x"] = note
        with pytest.raises(HttpError) as caught:
            await a.ask(id_of(b), "x", "of another key", ADA)
        assert caught.value.status in (502, 503)

    with pytest.raises(ProcessGoneError):  # who has another key is nobody
        run(shared, lambda a, b: a.ask("00000000", "x", None, ADA))
    run(shared, test, b"k", b"another")
    assert handled == []


@pytest.mark.parametrize("change", ["moved", "changed", "outcome"])
def test_no_row_can_be_changed_or_moved(shared, change):
    """Write access to the database is not enough to answer, or to have something handled for another caller."""
    handled = []

    async def test(a, b):
        async def note(body):
            handled.append(body)
            return "done"

        b.handlers["x"] = note
        await a.ask(id_of(b), "x", "once", ADA, id="first")
        ((body, outcome),) = rows(shared, "SELECT body, outcome FROM messages WHERE id = 'first'")
        body, outcome = bytes(body), bytes(outcome)
        sql = f"INSERT INTO messages VALUES ('second', %s, %s, %s, %s, {shared.clock} + 60)"
        if change == "outcome":  # of another message
            shared.write(lambda work: work.execute(sql, ("nobody", id_of(a), body, outcome)))
            with pytest.raises(HttpError) as caught:
                await a.ask(id_of(b), "x", "again", ADA, id="second")
            assert caught.value.code == "bad_outcome"
            return
        forged = body if change == "moved" else body[:-1] + bytes([body[-1] ^ 1])
        shared.write(lambda work: work.execute(sql, (id_of(b), id_of(a), forged, None)))
        while not rows(shared, "SELECT id FROM messages WHERE id = 'second' AND outcome IS NOT NULL"):
            await asyncio.sleep(0.05)

    run(shared, test)
    assert handled == ["once"]


def test_an_outcome_outlives_the_process_that_stored_it(shared):
    """Who lost the response, because the other process was stopped, sends the message again."""

    async def test(a, b):
        async def fine(body):
            return "fine"

        b.handlers["x"] = fine
        assert await a.ask(id_of(b), "x", None, ADA, id="it") == "fine"
        b._members.close()
        a._members._beat()
        assert await a.ask(id_of(b), "x", None, ADA, id="it") == "fine"

    run(shared, test)


def test_nothing_is_stored_for_a_process_that_does_not_exist(shared):
    with pytest.raises(ProcessGoneError):
        run(shared, lambda a, b: a.ask("00000000", "x", "long" * 1000, ADA))
    assert rows(shared) == []


@pytest.mark.parametrize("status", [401, 503])
def test_who_was_not_admitted_can_try_again(shared, status):
    refusals = [status]

    async def test(a, b):
        @contextmanager
        def admit(principal, address):
            if refusals:
                raise HttpError(refusals.pop(), "refused", "Not now.")
            yield

        async def fine(body):
            return "fine"

        b.admit = admit
        b.handlers["x"] = fine
        with pytest.raises(HttpError, match="Not now"):
            await a.ask(id_of(b), "x", None, ADA, id="it")
        assert await a.ask(id_of(b), "x", None, ADA, id="it") == "fine"
        assert await a.ask(id_of(b), "x", None, ADA, id="it") == "fine"

    run(shared, test)


def test_who_gives_up_while_the_message_is_written_cancels_it_there(shared, monkeypatch):
    write, ended = shared.write, []

    async def test(a, b):
        writing, loop = asyncio.Event(), asyncio.get_running_loop()

        def slow(job, **options):
            if "slow" not in ended:
                ended.append("slow")
                loop.call_soon_threadsafe(writing.set)
                time.sleep(0.5)
            return write(job, **options)

        async def wait(body):
            try:
                await asyncio.sleep(3)
                ended.append("handled")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        b.handlers["wait"] = wait
        monkeypatch.setattr(shared, "write", slow)
        asking = asyncio.create_task(a.ask(id_of(b), "wait", None, ADA))
        await writing.wait()
        asking.cancel()
        await asyncio.sleep(5)

    run(shared, test)
    assert "handled" not in ended


def test_an_answer_that_only_the_database_kept_from_its_call_can_be_sent_again(shared, monkeypatch):
    """The outcome is a refusal like that of a call on the same process, and it is not kept."""
    meta = {PROTOCOL_VERSION: STATELESS_REVISIONS[0], CLIENT_CAPABILITIES: {}}
    params = {"name": "x", "requestState": "s", "_meta": meta}
    told = {"method": "tools/call", "params": params, "menu": None, "whole": False}
    failures = [JsonRpcError(INTERNAL_ERROR, "Unknown tool: x", AWAY)]

    async def handle(service, request):
        if failures:
            raise failures.pop()
        return {"said": "fine"}

    async def test(a, b):
        monkeypatch.setattr(http, "handle_request", handle)
        b.handlers["request"] = StatelessMcp(None, None).answer_for_other
        with pytest.raises(HttpError) as caught:
            await a.ask(id_of(b), "request", told, ADA, id="it")
        assert (caught.value.status, caught.value.code) == (503, "database_away")
        assert await a.ask(id_of(b), "request", told, ADA, id="it") == {"result": {"said": "fine"}}

    run(shared, test)


def test_a_long_message_is_not_read_again_while_it_is_handled(shared):
    read_ids = []

    async def test(a, b):
        read = b._received

        def counting(*args):
            found = read(*args)
            read_ids.extend(one.id for one in found)
            return found

        async def wait(body):
            for _ in range(3):
                b._woken.set()
                await asyncio.sleep(0.3)

        b._received, b.handlers["wait"] = counting, wait
        await a.ask(id_of(b), "wait", "x" * 100_000, ADA, id="it")

    run(shared, test)
    assert read_ids.count("it") == 1


def test_all_others_are_told(shared):
    async def test(a, b):
        told = asyncio.Event()

        async def take(body):
            told.set()

        b.handlers["news"] = take
        await a.tell(None, "news", {}, ADA)
        await told.wait()
        told.clear()
        await a.ask_all("news", {}, ADA)
        assert told.is_set()

    run(shared, test)
    assert rows(shared, "SELECT count(*) FROM messages WHERE sender = ''") == [(0,)]
