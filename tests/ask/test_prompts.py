"""What fits into a model's window."""

import pytest
from ask.sessions.things import paired
from helpers import calls, each
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask import prompts
from onetool.ask.errors import AskError
from onetool.ask.messages import Assistant, Call, File, Result, User
from onetool.ask.prompts import window_of
from onetool.core.text import count_tokens


def fit(*args, **more):
    """What stays, and how many are left out."""
    return prompts.fit_messages(*args, **more)[:2]


def turn(text="word " * 40, calls=1, content="x" * 400):
    ids = [str(number) for number in range(calls)]
    return [
        User(text=text),
        Assistant(calls=tuple(Call(id=id, name="t", args={"a": 1}) for id in ids)),
        *(Result(call=id, name="t", content=content, value=[1]) for id in ids),
        Assistant(text="done"),
    ]


def size(messages):
    return sum(map(prompts._message_tokens, messages))


def test_what_fits_is_left_alone():
    messages = turn() + turn()
    assert fit(messages, size(messages)) == (messages, 0)
    assert fit([], 10) == ([], 0)
    assert fit(tuple(messages), 10**6, other=999)[0] == messages


def test_the_oldest_turns_are_left_out_whole():
    messages = turn() + turn("b") + turn("c")
    assert fit(messages, size(messages) - 1) == (messages[4:], 4)
    assert fit(messages, size(messages), other=1) == (messages[4:], 4)
    assert fit(messages, size(messages[8:])) == (messages[8:], 8)


def test_a_large_turn_in_between_ends_it():
    messages = turn() + turn(content="y" * 9_000) + turn("c")
    assert fit(messages, 1_000) == (messages[8:], 8)


def test_it_begins_with_a_question():
    messages = [Assistant(text="whose question was lost"), *turn()]
    assert fit(messages, 10_000) == (messages[1:], 1)
    assert fit(messages[:1], 10_000) == ([], 1)


def test_the_oldest_results_of_the_last_turn_are_shortened():
    messages = turn() + turn("c", calls=3, content="some words " * 400)
    kept, left_out = fit(messages, 1_800)
    assert left_out == 4
    first, second, third = [one for one in kept if isinstance(one, Result)]
    assert first.content.startswith("some words some")
    assert "the result has 4,400 characters" in first.content
    assert count_tokens(first.content) < 150
    assert second.content.endswith("window]")
    assert count_tokens(first.content) < count_tokens(second.content)
    assert third is messages[-2]
    assert 1_700 < size(kept) <= 1_800
    assert first.value == [1]
    assert [len(one.content) for one in messages if isinstance(one, Result)] == [400, 4400, 4400, 4400]


def test_what_is_too_long_is_refused_in_words():
    with pytest.raises(AskError) as caught:
        fit([User(text="word " * 1_000)], 1_000, other=300)
    assert caught.value.reason == "too_long"
    assert str(caught.value) == (
        "too long for the model: about 1,554 tokens, including about 300 for the instructions and tools, "
        "but it takes 1,000"
    )
    assert "ask.context_tokens" in " ".join(caught.value.hints)
    assert "--tool-allow" not in " ".join(caught.value.hints)
    with pytest.raises(AskError) as caught:
        fit([User(text="x")], 1_000, other=2_000)
    assert "--tool-allow" in " ".join(caught.value.hints)


def test_everything_that_is_sent_counts():
    assert size([User(text="", files=(File(name="a", kind="image/png", data="A" * 10**6),))]) in range(1_500, 1_520)
    text = "some words " * 100
    least = count_tokens(text)
    for message in (
        User(text=text),
        User(text="", files=(File(name="a", text=text),)),
        Assistant(text=text),
        Assistant(kept={"signature": text}),
        Assistant(calls=(Call(id="1", name="a", args={"t": text}),)),
        Assistant(calls=(Call(id="1", name="a", malformed=text),)),
        Assistant(calls=(Call(id="1", name="a", kept={"t": text}),)),
        Result(call="1", name="a", content=text),
    ):
        assert least <= size([message]) < least + 30
    assert size([Result(call="1", name="a", content="", value=text)]) < 10
    assert size([Assistant(text="\ud800", calls=(Call(id="1", name="a", args={"\ud800": b"x"}),))]) < 30


@pytest.mark.long
def test_ten_thousand_messages_are_soon_counted():
    messages = [one for number in range(2_500) for one in turn(f"question {number} " * 20, content=f"{number} " * 60)]
    with calls() as first:
        assert fit(messages, 10**7) == (messages, 0)
    with calls() as again:
        assert fit(messages, 10**7) == (messages, 0)
    with calls() as few:
        kept, left_out = fit(messages, 20_000)
    assert 0 < len(kept) == 10_000 - left_out
    assert again() < first() < 30 * len(messages)
    assert few() < first() / 10


def test_a_huge_result_is_soon_shortened():
    with calls(5_000):
        kept, _ = fit(turn(content="word " * 200_000), 10_000)
        assert size(kept) <= 10_000


def test_what_is_remembered_has_a_limit(monkeypatch):
    monkeypatch.setattr(prompts, "MAX_COUNTED", 10)
    monkeypatch.setattr(prompts, "_counted", {})
    for number in range(100):
        fit([User(text=f"{number}")], 100)
    assert len(prompts._counted) <= 10


TURNS = st.builds(turn, st.text(max_size=200), st.integers(0, 3), st.text(max_size=600) | st.just("ab " * 900))


@given(st.lists(TURNS, min_size=1, max_size=5), st.integers(0, 1_500), st.integers(0, 100))
def test_whatever_is_said_it_fits_or_is_refused(turns, most, other):
    messages = [one for some in turns for one in some]
    try:
        kept, left_out = fit(messages, most, other=other)
    except AskError:
        shortest = sum(min(size([one]), 110) if isinstance(one, Result) else size([one]) for one in turns[-1])
        assert shortest + other > most
        return
    assert size(kept) + other <= most
    assert isinstance(kept[0], User)
    assert paired(kept)
    assert left_out == len(messages) - len(kept)
    assert left_out in [sum(map(len, turns[:count])) for count in range(len(turns))]
    for before, after in zip(messages[left_out:], kept, strict=True):
        assert before == after or (before.call, before.name) == (after.call, after.name)


@each(
    ("provider", "model", "most"),
    [
        ("openai", "gpt-4o-mini", 128_000),
        ("openai", "gpt-4-0613", 8_192),
        ("openai", "gpt-4-turbo-2024-04-09", 128_000),
        ("openai", "gpt-4.1-nano", 1_047_576),
        ("openai", "gpt-5.4", 272_000),
        ("openai", "gpt-5.1-chat-latest", 128_000),
        ("openai", "ft:gpt-4o-mini:me::1", 128_000),
        ("openai", "anthropic/claude-opus-4.1", 200_000),
        ("anthropic", "claude-sonnet-4-5", 200_000),
        ("gemini", "models/gemini-2.5-pro", 1_048_576),
        ("openai", "gpt-oss:20b", 32_768),
        ("openai", "meta-llama/Llama-3.3-70B", 32_768),
        ("openai", "", 32_768),
        ("ollama", "gpt-4o", 32_768),
    ],
)
def test_windows_of_models(provider, model, most):
    assert window_of(provider, model) == most
