"""Whatever happens to a file: it is read, what is whole in it is there, and what is added is read back."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from ask.sessions.things import paired
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask.messages import Assistant, Call, File, Result, Usage, User
from onetool.ask.sessions import Sessions

TEXT = st.text(max_size=8)
IDS = st.sampled_from(["1", "2", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda some: st.lists(some, max_size=2), max_leaves=4
)
CALLS = st.builds(Call, id=IDS, name=TEXT, args=st.dictionaries(TEXT, VALUES, max_size=2), malformed=st.none() | TEXT)
MESSAGES = st.one_of(
    st.builds(User, text=TEXT, files=st.lists(st.builds(File, name=TEXT, text=TEXT), max_size=1).map(tuple)),
    st.builds(Assistant, text=TEXT, calls=st.lists(CALLS, max_size=3).map(tuple), broken_off=st.booleans()),
    st.builds(Result, call=IDS, name=TEXT, content=TEXT, ok=st.booleans(), value=VALUES),
    st.just("end"),
)
NEW = [
    User(text="new"),
    Assistant(calls=(Call(id="n", name="t"),)),
    Result(call="n", name="t", content="r"),
    Assistant(),
]


async def write(sessions, messages):
    async with sessions.turn("x") as session:
        for message in messages:
            if message == "end":
                session.end("p", "m", Usage(input=1), 1)
            else:
                session.append(message)


def without_results(messages):
    return [one for one in messages if isinstance(one, User | Assistant)]


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_a_file_that_is_cut_anywhere(messages, data):
    with TemporaryDirectory() as folder:
        sessions, file = Sessions(Path(folder), now=lambda: 1.0), Path(folder) / "x.jsonl"
        asyncio.run(write(sessions, messages))
        whole = file.read_bytes()
        cut = whole[: data.draw(st.integers(1, len(whole)))] + data.draw(st.sampled_from([b"", b"\0\0\0", b"\xff{"]))
        file.write_bytes(cut)
        before = sessions.read("x")
        assert paired(before.messages)
        kept = without_results(before.messages)
        assert kept == without_results(messages)[: len(kept)]
        assert before.damaged <= 1
        sessions.list()

        asyncio.run(write(sessions, [*NEW, "end"]))
        after = sessions.read("x")
        assert list(after.messages) == [*before.messages, *NEW]
        assert after.damaged == before.damaged
        assert file.read_bytes().startswith(cut)
        info = sessions.list()[0]
        assert (info.turns, info.usage) == (after.turns, after.usage)


@given(
    st.binary(min_size=1, max_size=60),
    st.lists(st.sampled_from([b"\n", b'{"type":"user","text":"a"}', b"{"]), max_size=5),
)
def test_a_file_of_anything(some, lines):
    with TemporaryDirectory() as folder:
        sessions = Sessions(Path(folder))
        (Path(folder) / "x.jsonl").write_bytes(some + b"".join(lines))
        before = sessions.read("x")
        assert paired(before.messages)
        asyncio.run(write(sessions, NEW))
        assert list(sessions.read("x").messages) == [*before.messages, *NEW]
        sessions.list()
