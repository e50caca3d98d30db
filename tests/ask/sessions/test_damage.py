"""Whatever stands in the records of a session: they are read, and what is added is read back."""

import pytest
from ask.sessions.things import paired
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask.messages import Assistant, Call, File, Result, User
from onetool.ask.sessions.records import Row, TurnEnded, message_row, read_session

TEXT = st.text(max_size=8)
IDS = st.sampled_from(["1", "2", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda some: st.lists(some, max_size=2), max_leaves=4
)
CALLS = st.builds(Call, id=IDS, name=TEXT, args=st.dictionaries(TEXT, VALUES, max_size=2), malformed=st.none() | TEXT)
MESSAGES = st.one_of(
    st.just(TurnEnded(steps=1)),
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

TAILS = (b"", b"\0\0\0", b"\xff{")  # what a crash may leave behind it


def without_results(messages):
    return [one for one in messages if isinstance(one, User | Assistant)]


def body_of(record):
    return (Row.of(record) if isinstance(record, TurnEnded) else message_row(record, 1.0)[0]).body


@pytest.mark.long
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_whatever_was_said_is_read_but_for_what_is_damaged(said, data):
    bodies = [body_of(record) for record in said]
    at = data.draw(st.integers(0, len(bodies) - 1))
    bodies[at] = bodies[at][: data.draw(st.integers(0, len(bodies[at]) - 1))] + data.draw(st.sampled_from(TAILS))
    read = read_session(bodies)
    messages = [one.message for one in read.messages]
    assert paired(messages)
    assert read.damaged == 1
    assert without_results(messages) == without_results([*said[:at], *said[at + 1 :]])


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b'{"type":"user","text":"a"}', b"{"]), max_size=5))
def test_records_of_anything(bodies):
    before = [one.message for one in read_session(bodies).messages]
    assert paired(before)
    added = [body_of(one) for one in NEW]
    assert [one.message for one in read_session([*bodies, *added]).messages] == [*before, *NEW]
