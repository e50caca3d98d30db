"""Whatever a server sends is read, or refused in words; and what was read can be kept, and sent again."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ask.providers.mutation import mutated
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool import ToolSpec
from onetool.ask.errors import ModelError
from onetool.ask.messages import Assistant, ModelPrompt, ModelReply, Result, TextDelta, ThoughtDelta, Toolset, User
from onetool.ask.model_client import JsonLines
from onetool.ask.providers import Adapter, adapter
from onetool.core.model_providers import PROVIDERS
from onetool.http.body import EventDecoder, event_value

DATA = Path(__file__).parent / "data"
REFUSALS = ("errors", "refusals")
TOOLS = Toolset([ToolSpec(name="weather.now", description="The weather.", input_schema={"type": "object"})])
PROMPT = ModelPrompt(model="m", messages=(User(text="How warm is it?"),), tools=TOOLS)
RECORDED = [name for name in PROVIDERS if (DATA / name).is_dir()]
EVERY = pytest.mark.parametrize("asked", [adapter(name) for name in RECORDED], ids=RECORDED)
STATUS = st.sampled_from([301, 400, 404, 429, 500])


def wholes(asked: Adapter) -> list[Any]:
    """Answers, and the list of models."""
    files = sorted((DATA / asked.name).glob("*.json"))
    return [json.loads(path.read_text()) for path in files if path.stem not in REFUSALS]


def streams(asked: Adapter) -> list[list[Any]]:
    found: list[list[Any]] = []
    for path in sorted(path for path in (DATA / asked.name).iterdir() if path.suffix in (".sse", ".ndjson")):
        frames = EventDecoder() if asked.stream == "events" else JsonLines()
        found.append([event_value(text) for text in (*frames.feed(path.read_bytes()), *frames.end())])
    return found


def refusals(asked: Adapter) -> list[Any]:
    (path,) = (path for name in REFUSALS if (path := DATA / asked.name / f"{name}.json").exists())
    cases = json.loads(path.read_text())
    return [case["body"] for case in (cases.values() if isinstance(cases, dict) else cases)]


def goes_back(reply: ModelReply, asked: Adapter) -> None:
    assert msgspec.json.decode(msgspec.json.encode(reply), type=ModelReply) is not None
    calls = tuple(msgspec.structs.replace(call, id=call.id or f"c{n}") for n, call in enumerate(reply.calls))
    said = Assistant(text=reply.text, calls=calls, provider=asked.name, kept=reply.kept)
    results = (Result(call=call.id, name=call.name, content="21") for call in calls)
    prompt = msgspec.structs.replace(PROMPT, messages=(*PROMPT.messages, said, *results))
    assert msgspec.json.encode(asked.request(prompt, True).body)


@EVERY
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_answer(asked: Adapter, data: st.DataObject) -> None:
    answer = mutated(data.draw, data.draw(st.sampled_from(wholes(asked))))
    with suppress(ModelError):
        goes_back(asked.reply(answer, PROMPT), asked)
    with suppress(ModelError):
        assert all(isinstance(name, str) for name in asked.models(answer))


@EVERY
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_stream(asked: Adapter, data: st.DataObject) -> None:
    stream = mutated(data.draw, data.draw(st.sampled_from(streams(asked))))
    reader = asked.reader(PROMPT)
    with suppress(ModelError):
        for event in stream if isinstance(stream, list) else [stream]:
            assert all(isinstance(delta, TextDelta | ThoughtDelta) and delta.text for delta in reader.feed(event))
    assert isinstance(reader.is_complete, bool)
    with suppress(ModelError):
        goes_back(reader.reply(), asked)


@EVERY
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), status=STATUS)
def test_any_refusal(asked: Adapter, data: st.DataObject, status: int) -> None:
    error = asked.failure(status, mutated(data.draw, data.draw(st.sampled_from(refusals(asked)))))
    assert error.reason
    assert str(error)
