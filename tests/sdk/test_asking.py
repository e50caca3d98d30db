"""Talking with whoever called a tool: questions, messages, and what becomes of them where nobody can answer."""

import asyncio
from types import ModuleType

import pytest

from onetool.core.call import CannotAsk, Declined, ForModel, ForPerson, ForRoots, current_caller
from onetool.sdk import ask_model, ask_person, client_can, client_roots, context, log_message
from onetool.sdk.testing import packs

NAME = {"name": {"type": "string"}}


class Caller:
    """One that can be asked some things, and answers them all alike."""

    owner = "me"

    def __init__(self, *able, answer=None):
        self.able = able
        self.answer = answer
        self.asked, self.lacking, self.logged = [], [], []

    def can(self, what):
        return what in self.able

    def lacks(self, error):
        self.lacking.append(error)

    def log(self, level, data, logger):
        self.logged.append((level, data, logger))

    async def ask(self, question):
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def asked(caller, work):
    """What comes of asking."""

    async def run():
        current_caller.set(caller)
        return await work()

    return asyncio.run(run())


# Questions to the person


def test_a_form_is_made_of_its_fields():
    caller = Caller("elicitation", answer={"name": "Ada"})
    fields = {**NAME, "age": {"type": "integer", "default": 30}}
    assert asked(caller, lambda: ask_person("Who?", fields)) == {"name": "Ada"}
    (question,) = caller.asked
    assert isinstance(question, ForPerson)
    assert question.message == "Who?"
    assert question.schema == {"type": "object", "properties": fields, "required": ["name"]}


def test_a_form_where_everything_is_filled_in_requires_nothing():
    caller = Caller("elicitation", answer={})
    asked(caller, lambda: ask_person("Who?", {"age": {"type": "integer", "default": 30}}))
    assert "required" not in caller.asked[0].schema


def test_a_whole_schema_stays_as_it_is():
    caller = Caller("elicitation", answer={})
    schema = {"type": "object", "properties": NAME, "required": [], "title": "You"}
    asked(caller, lambda: ask_person("Who?", schema))
    assert caller.asked[0].schema == schema


def test_a_field_may_be_called_type():
    caller = Caller("elicitation", answer={})
    fields = {"type": {"type": "string"}, "properties": {"type": "string"}}
    asked(caller, lambda: ask_person("Which?", fields))
    assert caller.asked[0].schema["properties"] == fields


def test_a_question_has_a_key_of_its_own():
    caller = Caller("elicitation", "sampling", "roots", answer={})

    async def work():
        for message, key in (("Who?", None), ("Who?", None), ("Where?", None), ("Who?", "mine")):
            await ask_person(message, NAME, key=key)

    asked(caller, work)
    one, same, other, mine = (question.key for question in caller.asked)
    assert one == same
    assert len({one, other, mine}) == 3
    assert mine == "mine"


def test_a_no_is_raised():
    with pytest.raises(Declined):
        asked(Caller("elicitation", answer=Declined("decline")), lambda: ask_person("Who?", NAME))


# To the model, and for folders


def test_a_text_is_a_message_of_the_user():
    caller = Caller("sampling", answer="Paris")
    assert asked(caller, lambda: ask_model("Capital?", max_tokens=9, system="Be brief.")) == "Paris"
    (question,) = caller.asked
    assert isinstance(question, ForModel)
    assert question.messages == ({"role": "user", "content": {"type": "text", "text": "Capital?"}},)
    assert (question.max_tokens, question.system) == (9, "Be brief.")


def test_messages_may_have_texts_or_content():
    caller = Caller("sampling", answer="")
    picture = {"type": "image", "data": "", "mimeType": "image/png"}
    messages = [{"role": "user", "content": picture}, {"role": "assistant", "content": "A cat."}]
    asked(caller, lambda: ask_model(messages))
    assert caller.asked[0].messages == (
        {"role": "user", "content": picture},
        {"role": "assistant", "content": {"type": "text", "text": "A cat."}},
    )
    assert caller.asked[0].max_tokens == 1000
    assert caller.asked[0].system is None


def test_folders_are_asked_for():
    caller = Caller("roots", answer=[{"uri": "file:///a"}])
    assert asked(caller, client_roots) == [{"uri": "file:///a"}]
    assert isinstance(caller.asked[0], ForRoots)


# Where nobody can answer


@pytest.mark.parametrize(
    ("work", "capability", "whom"),
    [
        (lambda: ask_person("Who?", NAME), "elicitation", "a person"),
        (lambda: ask_model("Who?"), "sampling", "a model"),
        (client_roots, "roots", "for its folders"),
    ],
)
def test_who_can_not_be_asked_is_not_asked(work, capability, whom):
    with pytest.raises(CannotAsk) as caught:
        asked(None, work)
    assert caught.value.capability == capability
    assert (
        str(caught.value)
        == f"this tool needs to ask {whom}, which can't be done from here: {capability} is not supported"
    )
    caller = Caller(*{"elicitation", "sampling", "roots"} - {capability})
    with pytest.raises(CannotAsk, match="which can't be done through this client"):
        asked(caller, work)
    assert caller.asked == []
    assert [error.capability for error in caller.lacking] == [capability]


def test_the_error_names_the_tool():
    async def asks() -> str:
        """Ask."""
        return await ask_model("?")

    module = ModuleType("quiz")
    asks.__module__ = "quiz"
    module.asks = asks
    with packs(module) as tools:
        error = tools.result("quiz.asks").error
    assert error.message.startswith("quiz.asks needs to ask a model, which can't be done from here")
    assert error.reason == "cannot_ask"


def test_a_tool_can_find_out_first():
    async def what():
        return client_can("roots"), client_can("sampling")

    assert asked(None, what) == (False, False)
    assert asked(Caller("roots"), what) == (True, False)


# Messages


def test_messages_reach_the_caller():
    caller = Caller()

    async def work():
        log_message("a")
        log_message({"b": 1}, level="error", logger="mine")

    asked(caller, work)
    assert caller.logged == [("info", "a", None), ("error", {"b": 1}, "mine")]


def test_without_a_caller_they_reach_nobody(monkeypatch, caplog):
    """Neither one that was there before, nor the log, nor what is made ready for somebody."""
    caller, cleaned = Caller(), []
    monkeypatch.setattr(context, "redacted", lambda data: cleaned.append(data) or data)

    async def work():
        log_message("to the caller")
        current_caller.set(None)
        log_message("to nobody")

    with caplog.at_level("DEBUG", "onetool"):
        asked(caller, work)
    assert caller.logged == [("info", "to the caller", None)]
    assert cleaned == ["to the caller"]
    assert [one for one in caplog.records if one.name.startswith("onetool")] == []


def test_a_level_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="level: expected one of debug, info, notice"):
        log_message("a", level="loud")


def test_secrets_are_masked_and_the_logger_is_the_pack():
    caller = Caller()

    def tells() -> str:
        """Tell."""
        log_message("the key is s3cret-key")
        return "told"

    module = ModuleType("teller")
    tells.__module__ = "teller"
    module.tells = tells

    async def work():
        with packs(module, secrets={"KEY": "s3cret-key"}) as tools:
            return (await tools.result_async("teller.tells")).data

    assert asked(caller, work) == "told"
    assert caller.logged == [("info", "the key is ***", "teller")]


def test_secrets_are_masked_in_what_is_asked():
    caller = Caller("elicitation", "sampling", answer={"name": "Ada"})

    async def ask() -> dict:
        """Ask with a secret in it."""
        from onetool.sdk import get_secret

        await ask_model(f"what is {get_secret('KEY')}?", system=f"never say {get_secret('KEY')}")
        return await ask_person(f"is it {get_secret('KEY')}?", NAME)

    pack = ModuleType("pack")
    ask.__module__ = "pack"
    pack.ask = ask
    with packs(pack, secrets={"KEY": "s3cret-s3cret"}) as tools:

        async def call():
            current_caller.set(caller)
            return await tools.result_async("pack.ask")

        assert asyncio.run(call()).ok
    for_model, for_person = caller.asked
    assert (for_model.messages[0]["content"]["text"], for_model.system) == ("what is ***?", "never say ***")
    assert for_person.message == "is it ***?"
    assert "s3cret" not in repr(caller.asked)


def test_a_form_that_nobody_could_fill_in_is_told_at_once():
    caller = Caller("elicitation")
    with pytest.raises(Exception, match="no such type"):
        asked(caller, lambda: ask_person("Who?", {"name": {"type": "no such type"}}))
    assert caller.asked == []
