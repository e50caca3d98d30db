"""Whatever happens to a file: it is read, what is whole in it is there, and what is added is read back."""

import asyncio

import pytest
from ask.sessions.things import paired
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask.messages import Assistant, Call, File, Result, Usage, User
from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.records import TurnEnded, message_line, read_session, record_line

TEXT = st.text(max_size=8)
IDS = st.sampled_from(["1", "2", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda some: st.lists(some, max_size=2), max_leaves=4
)
CALLS = st.builds(Call, id=IDS, name=TEXT, args=st.dictionaries(TEXT, VALUES, max_size=2), malformed=st.none() | TEXT)
MESSAGES = st.one_of(
    st.just(TurnEnded(turns=1)),
    st.builds(User, text=TEXT, files=st.lists(st.builds(File, name=TEXT, text=TEXT), max_size=1).map(tuple)),
    st.builds(Assistant, text=TEXT, calls=st.lists(CALLS, max_size=3).map(tuple), broken_off=st.booleans()),
    st.builds(Result, call=IDS, name=TEXT, content=TEXT, ok=st.booleans(), value=VALUES),
)
NEW = [
    User(text="new"),
    Assistant(calls=(Call(id="n", name="t"),)),
    Result(call="n", name="t", content="r"),
    Assistant(),
]


TALK = [
    User(text="Grüße 🎉", files=(File(name="a", text="\n"),)),
    Assistant(text="Well …", calls=(Call(id="1", name="t", args={"a": [1]}), Call(id="2", name="t"))),
    Result(call="2", name="t", content="2", value={"n": None}),
    Result(call="1", name="t", content="1", ok=False),
    Assistant(text="Done."),
]
TAILS = (b"", b"\0\0\0", b"\xff{")  # what a crash may leave behind it


@pytest.fixture
def loop():
    with asyncio.Runner() as runner:
        yield runner


async def write(sessions, messages):
    async with sessions.turn("x") as session:
        for message in messages:
            session.append(message)
        session.end("p", "m", Usage(input=1), 1)


def without_results(messages):
    return [one for one in messages if isinstance(one, User | Assistant)]


def places(whole, step):
    """Where to cut: at each end of a line, just before and just behind, and all over the lines."""
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    some = {*range(1, len(whole), step), *(end + off for end in ends for off in (-1, 0, 1, 2))}
    return sorted(place for place in some if 0 < place <= len(whole))


def test_a_file_that_is_cut_anywhere_is_gone_on_with(tmp_path, loop):
    sessions, file = SessionStore(tmp_path, now=lambda: 1.0), tmp_path / "x.jsonl"
    for _ in range(2):
        loop.run(write(sessions, TALK))
    whole = file.read_bytes()
    for number, place in enumerate(places(whole, 31)):
        cut = whole[:place] + TAILS[number % len(TAILS)]
        file.write_bytes(cut)
        before = sessions.read("x")
        assert before.damaged <= 1
        sessions.list()

        loop.run(write(sessions, NEW))
        after = sessions.read("x")
        assert list(after.messages) == [*before.messages, *NEW]
        assert after.damaged == before.damaged
        assert file.read_bytes().startswith(cut)
        info = sessions.list()[0]
        assert (info.turns, info.usage) == (after.turns, after.usage)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_whatever_was_said_is_read_up_to_the_cut(said, data):
    lines = [record_line(one) if isinstance(one, TurnEnded) else message_line(one, 1.0)[0] for one in said]
    whole = b"".join(lines)
    cut = whole[: data.draw(st.integers(1, len(whole)))] + data.draw(st.sampled_from(TAILS))
    read = read_session("x", cut)
    messages = [one.message for one in read.said]
    assert paired(messages)
    found = without_results(messages)
    assert found == without_results(said)[: len(found)]
    assert len(found) >= len(without_results(said[: cut.count(b"\n")]))
    assert read.damaged <= 1


@given(
    st.binary(min_size=1, max_size=60),
    st.lists(st.sampled_from([b"\n", b'{"type":"user","text":"a"}', b"{"]), max_size=5),
)
def test_a_file_of_anything(some, lines):
    data = some + b"".join(lines)
    before = [one.message for one in read_session("x", data).said]
    assert paired(before)
    added = b"".join(message_line(one, 1.0)[0] for one in NEW)
    assert [one.message for one in read_session("x", data + b"\n" + added).said] == [*before, *NEW]


def test_a_file_of_anything_is_gone_on_with(tmp_path, loop):
    sessions, file = SessionStore(tmp_path), tmp_path / "x.jsonl"
    for some in (
        b"\n",
        b"\0" * 9,
        b"{",
        b"\xff\n\n{",
        b'{"type":"user","text":"a"}',
        b'{"type":"ended","turns":"x"}\n',
    ):
        file.write_bytes(some)
        before = sessions.read("x")
        loop.run(write(sessions, NEW))
        assert list(sessions.read("x").messages) == [*before.messages, *NEW]
        sessions.list()
