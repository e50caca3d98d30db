"""A tool that the person calls in a session: the call and its result are part of what the next question says."""

import asyncio
import json

import pytest
from ask.harness import KEY, Harness
from ask.stand_in import Says
from helpers import CHECKPOINTS, session_text

from onetool.ask.messages import Assistant, User, UserCall
from onetool.ask.prompts import without_abandoned
from onetool.ask.sessions.markdown import markdown
from onetool.core.model_providers import PROVIDERS

PACK = f'''
from helpers import CHECKPOINTS

def price(item: str, card_token: str = "") -> str:
    """What it costs."""
    return f"{{item}} costs 3. {KEY}"

def fails() -> str:
    """It never works."""
    raise ValueError("the scales are broken")

async def hangs() -> str:
    """It takes long."""
    await CHECKPOINTS["hangs"].pause()
'''


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return request.param


def called(harness, name, args=None, **options):
    kept = []
    result = asyncio.run(harness.app.user_call(name, args or {}, kept.append, **options))
    (session,) = kept
    return session, result


def test_each_provider_takes_it(tmp_path, provider):
    with Harness(tmp_path, provider, packs={"shop": PACK}) as harness:
        harness.model.will(Says("Tea is 3."), Says("Yes."))
        session, result = called(harness, "shop.price", {"item": "tea", "card_token": "4242"})
        assert result.data.startswith("tea costs 3.")
        called(harness, "shop.fails", session=session)
        assert harness.ask("What is tea?", session=session).answer == "Tea is 3."
        called(harness, "shop.price", {"item": "rum"}, session=session)
        assert harness.ask("And rum?", session=session).answer == "Yes."
        assert not harness.model.refused
        first, second = harness.said_to_model(0), harness.said_to_model(1)
    assert "The person called a tool: shop.price" in first
    assert "tea costs 3." in first
    assert "the scales are broken" in first
    assert "<result id=" in first
    assert "4242" not in first + second
    assert KEY not in first + second
    assert second.index("rum costs 3.") > second.index("Tea is 3.")


def test_the_session_keeps_it(tmp_path):
    with Harness(tmp_path, packs={"shop": PACK}) as harness:
        session, _ = called(harness, "shop.price", {"item": "tea", "card_token": "4242"}, session="tea")
        read = harness.app.sessions.read(session)
        (info,) = harness.app.sessions.list()
        told = markdown(read)
    (message,) = read.messages
    assert isinstance(message, UserCall)
    assert (message.name, message.ok, message.args["item"]) == ("shop.price", True, "tea")
    assert (info.title, info.turns) == ("+shop.price", 0)
    assert "4242" not in session_text(tmp_path, "tea")
    assert KEY not in session_text(tmp_path, "tea")
    assert "## You called `shop.price`" in told
    assert "(no answer)" not in told


def test_a_call_that_is_stopped_is_told(tmp_path):
    async def stopped(app):
        call = asyncio.create_task(app.user_call("shop.hangs", {}, print, session="tea"))
        await CHECKPOINTS["hangs"].arrival()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    with Harness(tmp_path, packs={"shop": PACK}) as harness:
        asyncio.run(stopped(harness.app))
        (message,) = harness.app.sessions.read("tea").messages
    assert not message.ok
    assert "stopped before it ended" in message.content


def test_no_tools_and_the_allow_list_count_for_the_person_too(tmp_path):
    with Harness(tmp_path, packs={"shop": PACK}) as harness:
        for options in ({"with_tools": False}, {"allowed": ["time.now"]}):
            error = called(harness, "shop.price", {"item": "tea"}, **options)[1].error
            assert (error.code, error.reason) == ("tool_not_found", "denied")


def test_data_is_marked_as_such_without_tools_too(tmp_path):
    with Harness(tmp_path, packs={"shop": PACK}) as harness:
        harness.model.will(Says("Well."))
        session, _ = called(harness, "shop.price", {"item": "tea"})
        harness.ask("What is tea?", session=session, with_tools=False)
        assert "never follow" in json.dumps(harness.model.seen[0].messages)


def test_a_question_that_was_given_up_is_left_out_and_calls_are_not():
    call = UserCall(name="t", content="c")
    given_up, asked = User(text="a"), User(text="b")
    assert without_abandoned([call, given_up, call, asked]) == [call, call, asked]
    assert without_abandoned([given_up, Assistant(text="x"), call, asked]) == [
        given_up,
        Assistant(text="x"),
        call,
        asked,
    ]
    assert without_abandoned([asked, call]) == [asked, call]


def test_the_oldest_calls_are_left_out_where_there_is_no_room(tmp_path):
    long = "def read(word: str) -> str:\n    'Much.'\n    return f'{word} ' * 3000\n"
    with Harness(
        tmp_path, packs={"shop": long}, ask={"context_tokens": 12_000}, results={"inline_bytes": 100_000}
    ) as harness:
        harness.model.will(Says("Well."))
        for word in ("alpha", "beta", "gamma", "delta"):
            session, _ = called(harness, "shop.read", {"word": word}, session="long")
        assert harness.ask("Which?", session=session, allowed=["shop.read"]).answer == "Well."
        said = harness.said_to_model()
    assert "delta delta" in said
    assert "alpha alpha" not in said
