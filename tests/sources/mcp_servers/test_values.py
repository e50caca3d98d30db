"""What a server gives, tells and asks, as code and callers see it."""

import asyncio
from base64 import b64encode

import pytest
from sources.mcp_servers.harness import call, ran

from onetool import ToolCall
from onetool.core.call import Declined, ForModel, ForPerson, current_caller


@pytest.fixture
def app(harness):
    with harness.app({"good": harness.nasty("ok")}) as app:
        yield app


class Person:
    """A caller with a person and a model behind it."""

    owner = ""

    def __init__(self, answer=None, declines=False):
        self.answer, self.declines = answer, declines
        self.asked, self.heard = [], []

    def can(self, what):
        return True

    def lacks(self, error): ...

    def log(self, level, data, logger):
        self.heard.append((level, data, logger))

    async def ask(self, question):
        self.asked.append(question)
        if self.declines:
            raise Declined("decline")
        return self.answer


def call_as(app, caller, name, **args):
    async def main():
        current_caller.set(caller)
        return await app.call(ToolCall("1", name, args))

    return asyncio.run(main())


def test_structured_content_json_and_text(app):
    assert call(app, "good.structured", city="Kyiv").data == {"c": 21, "city": "Kyiv"}
    assert call(app, "good.json_text").data == {"a": [1, 2], "b": None}
    assert call(app, "good.echo", text="just [text").data == "just [text"
    assert call(app, "good.nothing").data is None


@pytest.mark.parametrize(
    ("tool", "kind", "mime", "data"),
    [
        ("picture", "image", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(64)),
        ("sound", "audio", "audio/wav", b"RIFF" + bytes(64)),
        ("blob", "blob", "application/octet-stream", bytes(range(256))),
    ],
)
def test_what_is_no_text_is_kept_behind_a_handle(app, tool, kind, mime, data):
    value = call(app, f"good.{tool}").data
    assert (value["type"], value["mimeType"], value["size"]) == (kind, mime, len(data))
    encoded = b64encode(data).decode()
    assert encoded not in str(value)
    assert app.runtime.results.read(value["handle"], "") == f"data:{mime};base64,{encoded}"


def test_links_and_embedded_texts(app):
    link = call(app, "good.link").data
    assert (link["type"], link["uri"], link["mimeType"]) == ("resource_link", "file:///notes/today.txt", "text/plain")
    assert link["handle"]
    note = call(app, "good.note").data
    assert (note["type"], note["text"]) == ("resource", "a note")


def test_several_parts_are_a_list(app):
    before, picture, after = call(app, "good.mixed").data
    assert (before, picture["type"], after) == ("before", "image", "after")


def test_a_failure_is_told_in_the_servers_words(app):
    for tool in ("fails", "refuses"):
        failed = call(app, f"good.{tool}", why="no such city")
        assert (failed.error.code, failed.error.message) == ("execution_error", "no such city")
    said = ran(app, "good.fails(why='no such city')")
    assert "no such city" in said.error.message


def test_names_that_python_does_not_take(app):
    assert call(app, "good.get-it.now", **{"the-city": "Kyiv"}).data == "Kyiv"
    assert ran(app, "good.get_it_now(the_city='Kyiv')").data == "Kyiv"


def test_progress_and_messages_reach_whoever_called(app):
    told, person = [], Person()

    async def main():
        current_caller.set(person)
        await app.call(ToolCall("1", "good.logs", {"words": "careful"}))
        return await app.call(ToolCall("2", "good.slow", {"seconds": 0.1}), progress=lambda *said: told.append(said))

    assert asyncio.run(main()).data == "done"
    assert told[-1] == (10, 10, "step 10")
    assert ("warning", "careful", "ok") in person.heard


def test_a_question_to_nobody_is_refused_in_words(app):
    answer = call(app, "good.asks").data
    assert answer["result"] is None
    assert answer["error"]["message"]
    assert call(app, "good.samples").data["error"]["message"]


def test_a_question_reaches_the_person_and_says_who_asks(app):
    person = Person({"name": "Ada"})
    answer = call_as(app, person, "good.asks").data
    assert (answer["result"]["action"], answer["result"]["content"]) == ("accept", {"name": "Ada"})
    [question] = person.asked
    assert isinstance(question, ForPerson)
    assert "good" in question.message
    assert "Who?" in question.message
    assert call_as(app, Person(declines=True), "good.asks").data["result"]["action"] == "decline"


def test_a_prompt_reaches_the_model_behind_the_client(app):
    person = Person("hello")
    answer = call_as(app, person, "good.samples").data
    assert answer["result"]["content"] == {"type": "text", "text": "hello"}
    assert isinstance(person.asked[0], ForModel)


def test_a_question_is_never_for_another_caller(app):
    """Two callers at once on an old connection, which does not say in whose call a server asks."""
    one, two = Person({"name": "One"}), Person({"name": "Two"})

    async def main():
        async def as_(caller, name, **args):
            current_caller.set(caller)
            return await app.call(ToolCall("1", name, args))

        slow = asyncio.create_task(as_(one, "good.slow", seconds=2))
        await asyncio.sleep(0.5)
        asked = await as_(two, "good.asks")
        slow.cancel()
        return asked.data

    asyncio.run(app.servers.wait_connected())
    answer = asyncio.run(main())
    assert one.asked == []
    assert answer["result"] is None or answer["result"]["content"] == {"name": "Two"}
