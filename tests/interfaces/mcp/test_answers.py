"""A question of a tool as the protocol asks it, and what comes back as the tool wants it."""

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.call import Declined, ForModel, ForPerson, ForRoots
from onetool.core.errors import ToolFailure
from onetool.interfaces.mcp.client import BadAnswerError, RemoteClient, read_answer, request_for

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
PERSON = ForPerson(key="k", message="How many?", schema=SCHEMA)
MODEL = ForModel(key="k", messages=({"role": "user", "content": {"type": "text", "text": "?"}},), max_tokens=5)
ROOTS = ForRoots(key="k")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["action", "content", "roots"]), inner),
    max_leaves=6,
)


def words(text):
    return {"type": "text", "text": text}


def test_how_each_is_asked():
    assert request_for(PERSON) == {
        "method": "elicitation/create",
        "params": {"message": "How many?", "requestedSchema": SCHEMA},
    }
    assert request_for(MODEL) == {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": words("?")}], "maxTokens": 5},
    }
    terse = ForModel(key="k", messages=(), max_tokens=5, system="Be brief.")
    assert request_for(terse)["params"]["systemPrompt"] == "Be brief."
    assert request_for(ROOTS) == {"method": "roots/list", "params": {}}


def test_answers_that_fit():
    assert read_answer(PERSON, {"action": "accept", "content": {"n": 3}}) == {"n": 3}
    assert read_answer(PERSON, {"action": "accept", "content": {"n": 3, "more": 1}}) == {"n": 3, "more": 1}
    assert read_answer(MODEL, {"role": "assistant", "content": words("hi")}) == "hi"
    assert read_answer(MODEL, {"content": [words("a"), {"type": "audio"}, words("b")]}) == "a\nb"
    assert read_answer(ROOTS, {"roots": [{"uri": "file:///a"}]}) == [{"uri": "file:///a"}]
    assert read_answer(ROOTS, {"roots": []}) == []


@each(
    ("question", "result"),
    [
        (PERSON, None),
        (PERSON, []),
        (PERSON, {}),
        (PERSON, {"action": "accept"}),
        (PERSON, {"action": "accept", "content": None}),
        (PERSON, {"action": "accept", "content": {}}),
        (PERSON, {"action": "accept", "content": {"n": 0}}),
        (PERSON, {"action": "accept", "content": {"n": "3"}}),
        (PERSON, {"action": "ACCEPT", "content": {"n": 3}}),
        (PERSON, {"action": ["accept"], "content": {"n": 3}}),
        (MODEL, {}),
        (MODEL, {"content": None}),
        (MODEL, {"content": "hi"}),
        (MODEL, {"content": []}),
        (MODEL, {"content": ["hi"]}),
        (ROOTS, {}),
        (ROOTS, {"roots": None}),
        (ROOTS, {"roots": ["file:///a"]}),
        (ROOTS, {"roots": [{}]}),
    ],
)
def test_answers_that_are_none(question, result):
    with pytest.raises(BadAnswerError):
        read_answer(question, result)


def test_a_no_is_an_answer():
    for action, said in (("decline", "the person declined"), ("cancel", "the person cancelled")):
        with pytest.raises(Declined, match=said) as caught:
            read_answer(PERSON, {"action": action, "content": {"n": 3}})
        assert (caught.value.action, caught.value.reason) == (action, "declined")


def test_a_model_that_says_nothing_in_words():
    for content in ({"type": "image"}, [{"type": "tool_use"}, {"type": "text"}], {"type": "text", "text": 7}, {}):
        with pytest.raises(ToolFailure, match="; expected text"):
            read_answer(MODEL, {"content": content})


@given(JSON)
def test_whatever_comes_back_it_is_an_answer_or_none(result):
    for question in (PERSON, MODEL, ROOTS):
        with_error = None
        try:
            read_answer(question, result)
        except (BadAnswerError, ToolFailure) as error:
            with_error = error
        assert with_error is None or str(with_error)


# Who can be asked


@each(
    ("capabilities", "able"),
    [
        ({}, set()),
        ({"sampling": {}}, {"sampling"}),
        ({"sampling": {"tools": {}}, "roots": {"listChanged": True}}, {"sampling", "roots"}),
        ({"elicitation": {}}, {"elicitation"}),
        ({"elicitation": {"form": {}}}, {"elicitation"}),
        ({"elicitation": {"url": {}}}, set()),
        ({"elicitation": True, "sampling": None, "roots": []}, set()),
        ({"extensions": {"a/b": {}}}, {"a/b"}),
        ({"extensions": ["a/b"]}, set()),
        ({"a/b": {}}, set()),
    ],
)
def test_what_a_client_can(capabilities, able):
    client = RemoteClient(capabilities=capabilities)
    assert {what for what in ("elicitation", "sampling", "roots", "a/b") if client.can(what)} == able


def test_which_messages_a_client_wants():
    assert RemoteClient(log_level="warning").wants("warning")
    assert RemoteClient(log_level="warning").wants("emergency")
    assert not RemoteClient(log_level="warning").wants("notice")
    assert not RemoteClient(log_level=None).wants("emergency")
