"""Sessions as their users see them."""

import asyncio
import os
import stat
import time

import pytest
from ask.sessions.harness import harness, on_both, sqlite_harness
from helpers import calls
from msgspec import UNSET

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, Usage, User
from onetool.ask.sessions import check_id
from onetool.ask.sessions.records import INTERRUPTED, SESSION_ID, new_id

USAGE = Usage(input=10, output=2, cached=1)


__all__ = ["harness"]


@pytest.fixture
def sessions(harness):
    return harness.open()


def said(sessions, id, *texts, end=True, **options):
    """A turn for each text; the id."""

    async def turns():
        nonlocal id
        for text in texts:
            async with sessions.turn(id, **options) as session:
                id = session.id
                session.append(User(text=text))
                session.append(Assistant(text=f"re {text}"))
                if end:
                    session.end("openai", "gpt-x", USAGE, 1)

    asyncio.run(turns())
    return id


def refused(coroutine, reason):
    with pytest.raises(SessionError) as caught:
        asyncio.run(coroutine)
    assert caught.value.reason == reason
    return caught.value


async def entered(sessions, id, **options):
    async with sessions.turn(id, **options) as session:
        return session.is_new, list(session.messages)


# A turn


@on_both
def test_a_session_goes_on_where_it_was(sessions):
    id = said(sessions, None, "a")
    assert SESSION_ID.fullmatch(id)
    assert id.startswith("20261106-")
    assert asyncio.run(entered(sessions, id)) == (False, [User(text="a"), Assistant(text="re a")])
    assert said(sessions, id, "b", "c") == id
    read = sessions.read(id)
    assert [one.text for one in read.messages] == ["a", "re a", "b", "re b", "c", "re c"]
    assert set(read.times) == {1_794_000_000.25} == {read.created}
    assert (read.id, read.turns, read.damaged, read.provider, read.model) == (id, 3, 0, "openai", "gpt-x")
    assert read.usage == Usage(input=30, output=6, cached=3)
    assert abs(read.modified - time.time()) < 60


def test_names_may_be_chosen(sessions):
    assert asyncio.run(entered(sessions, "work")) == (True, [])
    said(sessions, "work", "a", new=True)
    error = refused(entered(sessions, "work", new=True), "exists")
    assert "'work' already" in str(error)
    assert asyncio.run(entered(sessions, "work"))[0] is False


@pytest.mark.parametrize("id", ["", ".", "..", "../x", "a/b", "-a", "a b", "a\n", "é", "a" * 65, "a\0", "_a", "C:x"])
def test_what_cannot_be_a_name(sessions, id):
    with pytest.raises(SessionError, match="can't be the name of a session"):
        check_id(id)
    refused(entered(sessions, id), "session")
    with pytest.raises(SessionError):
        sessions.read(id)
    with pytest.raises(SessionError):
        sessions.delete(id)


def test_what_can_be_a_name():
    for id in ("a", "A.b_c-9", "9" * 64, new_id(0)):
        assert check_id(id) == id
    assert new_id(0).startswith("19700101-000000-")


@on_both
def test_the_last_one(sessions, harness):
    assert "no session yet" in str(refused(entered(sessions, "last"), "not_found"))
    for number, id in enumerate(("b", "a", "c")):
        said(sessions, id, id)
        harness.set_modified(id, 100 + [2, 3, 1][number])
    assert sessions.read("last").id == "a"
    assert asyncio.run(entered(sessions, "last"))[1][0].text == "a"
    assert "stands for" in str(refused(entered(sessions, "last", new=True), "session"))
    sessions.delete("last")
    assert sessions.read("last").id == "b"


def test_a_name_of_ours_has_to_be_there(sessions, harness):
    """It is a mistyped one, then; and nothing is left of the attempt."""
    id = said(sessions, None, "a")
    other = f"{id[:-1]}{'b' if id[-1] != 'b' else 'c'}"
    error = refused(entered(sessions, other), "not_found")
    assert f"did you mean {id}?" in str(error)
    assert not harness.is_left(other)
    assert asyncio.run(entered(sessions, id))[0] is False
    assert asyncio.run(entered(sessions, other, new=True))[0] is True
    assert asyncio.run(entered(sessions, f"{other}-mine"))[0] is True
    assert sessions.similar_ids(other) == [id]


@on_both
def test_questions_without_an_answer(sessions):
    said(sessions, "x", "a")

    def lacking():
        read = sessions.read("x")
        return [place for place in range(len(read.messages)) if read.lacks_answer(place)]

    async def turns():
        async with sessions.turn("x") as session:
            session.append(User(text="b"))
            session.end("openai", "gpt-x", USAGE, 0)
        assert [one.answered for one in sessions.list()] == [False]
        async with sessions.turn("x") as session:
            session.append(User(text="c"))
            session.append(Assistant(calls=(Call(id="1", name="t"),)))
            session.append(Result(call="1", name="t", content="3"))
            await session.settle()
            assert lacking() == [2, 5]
            session.append(Assistant(text="3"))
            session.end("openai", "gpt-x", USAGE, 2)

    asyncio.run(turns())
    assert [one.answered for one in sessions.list()] == [True]
    assert lacking() == [2]


@on_both
def test_of_a_turn_in_which_nothing_is_said_nothing_is_left(sessions, harness):
    async def failing():
        async with sessions.turn("x"):
            assert sessions.list() == []
            assert not sessions.has("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        asyncio.run(failing())
    assert not harness.is_left("x")
    with pytest.raises(SessionError, match="there is no session 'x'"):
        sessions.read("x")


@on_both
def test_titles_that_are_given(sessions, harness):
    said(sessions, "x", "a", "b")
    said(sessions, "y", "c")
    harness.set_modified("x", 100.0)
    sessions.rename("x", " Tea \n time ")
    assert [(one.id, one.title, one.turns) for one in sessions.list()] == [("y", "c", 1), ("x", "Tea time", 2)]
    assert (sessions.info("x").modified, sessions.read("x").title) == (100.0, "Tea time")
    said(sessions, "x", "d")
    assert (sessions.info("x").title, sessions.info("last").id, sessions.info("x").turns) == ("Tea time", "x", 3)
    with pytest.raises(SessionError) as caught:
        sessions.rename("nothing", "x")
    assert caught.value.reason == "not_found"


@on_both
def test_pages_of_the_list(sessions, harness):
    for number, id in enumerate("abcde"):
        said(sessions, id, id)
        harness.set_modified(id, 100.0 + number // 2)
    found, before = [], None
    while True:
        page, before = sessions.page(before, 2)
        found += [one.id for one in page]
        if before is None:
            break
    assert found == ["e", "d", "c", "b", "a"] == [one.id for one in sessions.list()]


def test_after_its_turn_a_session_writes_nothing_more(sessions):
    async def late():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
        session.append(User(text="b"))

    assert "can't be written" in str(refused(late(), "session"))
    assert sessions.read("x").turns == 1


@on_both
def test_a_turn_that_broke_off_is_mended(sessions, harness):
    calls = Assistant(calls=(Call(id="1", name="t.a"), Call(id="2", name="t.b")))

    async def broken():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            session.append(calls)
            session.append(Result(call="1", name="t.a", content="ok"))

    asyncio.run(broken())
    harness.set_modified("x", 1.0)
    before = harness.data("x")
    expected = [
        *(User(text="a"), calls, Result(call="1", name="t.a", content="ok")),
        Result(call="2", name="t.b", content=INTERRUPTED, ok=False),
    ]
    assert asyncio.run(entered(sessions, "x"))[1] == expected == list(sessions.read("x").messages)
    said(sessions, "x", "b")
    assert list(sessions.read("x").messages) == [*expected, User(text="b"), Assistant(text="re b")]
    assert harness.data("x")[: len(before)] == before
    assert sessions.list()[0].turns == 2


# One at a time


@on_both
def test_a_second_turn_is_refused_while_one_is_under_way(sessions):
    async def both():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            with pytest.raises(SessionError) as caught:
                await entered(sessions, "x")
            assert caught.value.reason == "busy"
            assert "x is in use by this process" in str(caught.value)
            assert "--new-session" in " ".join(caught.value.hints)
            with pytest.raises(SessionError) as caught:
                sessions.delete("x")
            assert caught.value.reason == "busy"
            with pytest.raises(SessionError) as caught:
                await entered(sessions, "x", new=True)
            assert caught.value.reason == "exists"
            assert await entered(sessions, "y") == (True, [])
        assert await entered(sessions, "x") == (False, [User(text="a")])

    asyncio.run(both())


@on_both
def test_a_turn_that_has_said_nothing_yet_is_under_way(sessions):
    async def first_turn():
        async with sessions.turn("x"):
            for change in (sessions.delete, lambda name: sessions.rename(name, "Title")):
                with pytest.raises(SessionError) as caught:
                    change("x")
                assert caught.value.reason == "busy"

    asyncio.run(first_turn())


def test_a_second_turn_may_wait_and_holds_up_nobody(sessions):
    async def one(text, begun, go_on):
        async with sessions.turn("x", wait=20) as session:
            session.append(User(text=text))
            begun.set()
            await go_on.wait()
            session.append(Assistant(text=text))

    async def both():
        begun, go_on, second_begun = asyncio.Event(), asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(one("a", begun, go_on))
        await begun.wait()
        second = asyncio.create_task(one("b", second_begun, go_on))
        await asyncio.sleep(0.05)  # it waits, and this loop goes on, else nobody would ever say so
        assert not second_begun.is_set()
        go_on.set()
        await asyncio.gather(first, second)

    asyncio.run(both())
    assert [one.text for one in sessions.read("x").messages] == ["a", "a", "b", "b"]


def test_who_waits_for_a_session_that_is_taken_away_begins_it_anew(sessions):
    async def both():
        async with sessions.turn("x"):
            waiting = asyncio.create_task(entered(sessions, "x", wait=5))
            await asyncio.sleep(0.03)
        assert await waiting == (True, [])

    asyncio.run(both())


def test_waiting_ends(sessions):
    async def both():
        async with sessions.turn("x"):
            with pytest.raises(SessionError):
                await entered(sessions, "x", wait=0.05)

    asyncio.run(both())


# What is in the database


def test_reading_makes_nothing_and_writing_a_private_file(tmp_path):
    harness = sqlite_harness(tmp_path / "home")
    sessions = harness.open()
    assert (sessions.list(), sessions.page(None, 5), sessions.has("x"), sessions.has("a\0b")) == (
        [],
        ([], None),
        False,
        False,
    )
    for ask in (sessions.read, sessions.info, sessions.delete, lambda name: sessions.rename(name, "x")):
        for id in ("x", "last"):
            with pytest.raises(SessionError) as caught:
                ask(id)
            assert caught.value.reason == "not_found"
    assert not (tmp_path / "home").exists()
    said(sessions, "x", "a")
    harness.database.close()
    assert sorted(os.listdir(tmp_path / "home")) == [".onetool-state", "state.db"]
    assert stat.S_IMODE((tmp_path / "home" / "state.db").stat().st_mode) == 0o600


def test_a_file_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "state.db").symlink_to(tmp_path / "elsewhere")
    sessions = sqlite_harness(tmp_path / "home").open()
    assert "a symbolic link" in str(refused(entered(sessions, "x"), "session"))
    with pytest.raises(SessionError, match="a symbolic link"):
        sessions.list()
    assert not (tmp_path / "elsewhere").exists()


def test_a_home_that_cannot_be_made_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="Not a directory") as caught:
        said(sqlite_harness(tmp_path / "file" / "home").open(), "x", "a")
    assert caught.value.reason == "session"


def test_one_that_is_too_large_is_refused(sessions, monkeypatch):
    said(sessions, "x", "a")
    monkeypatch.setattr("onetool.ask.sessions.store.MAX_BYTES", 100)
    with pytest.raises(SessionError, match="bytes, more than 100"):
        sessions.read("x")


def test_kinds_of_lines_that_are_not_known_are_passed_over(sessions, harness):
    said(sessions, "x", "a")
    harness.add("x", b'{"type":"summary","of":3}')
    said(sessions, "x", "b")
    read = sessions.read("x")
    assert (read.turns, read.damaged) == (2, 0)


@on_both
def test_deleting(sessions):
    said(sessions, "work", "a")
    with pytest.raises(SessionError, match=r"no session 'wrok'; did you mean work\?") as caught:
        sessions.delete("wrok")
    assert caught.value.reason == "not_found"
    sessions.delete("work")
    with pytest.raises(SessionError, match=r"no session 'work'$"):
        sessions.read("work")
    assert sessions.list() == []


# The list


def test_the_list(sessions, harness):
    assert sessions.list() == []
    said(sessions, "a", "What is\nthis?", "And that?")
    said(sessions, "b", "x" * 100, end=False)
    harness.set_modified("a", 100.5)
    b, a = sessions.list()
    assert (a.id, a.created, a.modified, a.turns, a.title) == ("a", 1_794_000_000.25, 100.5, 2, "What is this?")
    assert (a.provider, a.model, a.usage) == ("openai", "gpt-x", Usage(input=20, output=4, cached=2))
    assert a.size == sum(map(len, harness.data("a")))
    assert (b.id, b.turns, b.title, b.usage, b.model) == ("b", 1, "x" * 79 + "…", Usage(), "")


def test_turns_after_the_last_end_are_counted(sessions):
    said(sessions, "a", "one", "two")
    said(sessions, "a", "three", "x" * 50_000, end=False)
    (a,) = sessions.list()
    assert (a.turns, a.usage, a.model) == (4, Usage(input=20, output=4, cached=2), "gpt-x")


def test_a_list_of_damaged_ones(sessions, harness):
    said(sessions, "a", "one")
    harness.add("nuls", b"\0" * 9000)
    for body, kind in zip(harness.data("a")[1:-1], ("user", "assistant"), strict=True):
        harness.add("cut", body, kind)
    by_id = {one.id: one for one in sessions.list()}
    assert by_id["nuls"].turns == 0
    assert (by_id["cut"].turns, by_id["cut"].title) == (1, "")
    assert by_id["cut"].created == by_id["cut"].modified


def test_a_thousand_are_listed_with_little_work(sessions, harness):
    said(sessions, "a", "one " * 500, "two " * 500)
    columns = {"ask_sessions": "modified, title", "ask_messages": "number, kind, body"}
    for table, names in columns.items():
        copy = f"INSERT INTO {table} (owner, id, {names}) SELECT owner, %s, {names} FROM {table} WHERE id = 'a'"
        ids = [(f"s{number}",) for number in range(1000)]
        harness.database.write(lambda work, copy=copy, ids=ids: work.execute_many(copy, ids))
    with calls(200_000):
        assert len(sessions.list()) == 1001


# Results that are used again


def test_results_are_found_again(sessions):
    args = {"a": 1, "b": {"x": [1, None], "y": "é"}}
    call = Assistant(calls=(Call(id="1", name="t.a", args=args), Call(id="2", name="t.b", args=args)))

    async def turn():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            session.append(call)
            assert session.cached("t.a", args) is UNSET
            session.append(Result(call="1", name="t.a", content="", value={"n": 1}))
            session.append(Result(call="2", name="t.b", content=""))
            assert session.cached("t.a", args) == {"n": 1}
            session.append(Assistant(calls=(Call(id="1", name="t.a", args=args),)))
            session.append(Result(call="1", name="t.a", content="", value=None))

    async def again():
        async with sessions.turn("x") as session:
            return session.cached

    asyncio.run(turn())
    cached = asyncio.run(again())
    assert cached("t.a", {"b": {"y": "é", "x": [1, None]}, "a": 1}) is None
    assert cached("t.b", args) is UNSET
    for other in (
        {},
        {**args, "a": 1.0},
        {**args, "a": True},
        {**args, "a": "1"},
        {**args, "c": None},
        {"a": object()},
    ):
        assert cached("t.a", other) is UNSET


def test_failures_and_malformed_calls_are_not_used_again(sessions):
    async def turn():
        async with sessions.turn("x") as session:
            session.append(Assistant(calls=(Call(id="1", name="t.a"), Call(id="2", name="t.b", malformed="{"))))
            session.append(Result(call="1", name="t.a", content="", ok=False, value=1))
            session.append(Result(call="2", name="t.b", content="", value=1))
            session.append(Result(call="3", name="t.c", content="", value=1))
            return [session.cached(name, {}) for name in ("t.a", "t.b", "t.c")]

    assert asyncio.run(turn()) == [UNSET, UNSET, UNSET]


# Owners


ADA, BOB = "ada", "https://id.example.com|b"


@on_both
def test_two_owners_have_the_same_id_and_never_meet(harness):
    for owner in (ADA, BOB, ""):
        assert said(harness.open(owner), "trip", f"of {owner}") == "trip"
    for owner in (ADA, BOB, ""):
        store = harness.open(owner)
        assert [one.id for one in store.list()] == ["trip"]
        assert store.read("last").messages[0].text == f"of {owner}"
    harness.open(ADA).delete("trip")
    assert (harness.open(ADA).list(), len(harness.open(BOB).list()), len(harness.open("").list())) == ([], 1, 1)


def test_what_another_owner_has_is_told_by_nothing(harness):
    id = said(harness.open(ADA), None, "secret plan")
    said(harness.open(ADA), "secret-plan", "x")
    store = harness.open(BOB)
    assert (store.list(), store.page(None, 10), store.has(id), store.similar_ids("secret-plans")) == (
        [],
        ([], None),
        False,
        [],
    )
    for name in (id, "secret-plan", "last"):
        for ask in (store.read, store.info, store.delete, lambda name: store.rename(name, "x")):
            with pytest.raises(SessionError) as caught:
                ask(name)
            assert caught.value.reason == "not_found"
            assert "or rather" not in str(caught.value)
    assert refused(entered(store, id), "not_found")
    assert asyncio.run(entered(store, "secret-plan", new=True)) == (True, [])  # the id is free


@pytest.mark.parametrize("owner", ["../../x", "a/b", "x" * 5000, "\ud800", "user:ada", "owners"])
def test_any_name_can_be_an_owner(harness, owner):
    store = harness.open(owner)
    said(store, "s", "hello")
    assert [one.title for one in store.list()] == ["hello"]
    assert harness.open().list() == []
    [(key,)] = harness.write("SELECT owner FROM ask_sessions")
    assert owner not in key
