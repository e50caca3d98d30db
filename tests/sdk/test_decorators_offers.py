"""`@prompt` and `@resource`: what a pack offers beside tools, and what is wrong with it."""

import asyncio
from types import ModuleType

import pytest
from helpers import each

from onetool import Executor, ToolCall
from onetool.core.registry import SingleTool
from onetool.sdk import prompt, resource, tool
from onetool.sdk.decorators import offer_marks_of
from onetool.sdk.pack import tools_of


def pack(*functions, name="shelf"):
    """A module with these functions, and what is found in it."""
    module = ModuleType(name)
    for function in functions:
        function.__module__ = name
        setattr(module, function.__name__, function)
    return tools_of(module)


def read(one, **args):
    """What comes of calling what is behind an offer."""
    return asyncio.run(Executor(SingleTool(one.spec)).execute(ToolCall("1", one.spec.name, args)))


# Marks


def test_a_function_stays_what_it_is():
    @prompt
    def hello(name: str) -> str:
        return f"Hello, {name}!"

    @resource("notes://today", mime_type="text/markdown")
    def today() -> str:
        return "# Today"

    assert hello("Ada") == "Hello, Ada!"
    assert today() == "# Today"
    assert offer_marks_of(hello).uri is None
    assert (offer_marks_of(today).uri, offer_marks_of(today).mime_type) == ("notes://today", "text/markdown")
    assert offer_marks_of(len) is None


@each("uri", ["", "today", "://today", "notes:", "no tes://x", "notes://a b", "1x://a", "x:\ny", None, 7])
def test_an_address_has_a_scheme_and_no_blanks(uri):
    with pytest.raises(ValueError, match="uri: expected a URI with a scheme, such as notes://today"):
        resource(uri)


@each("uri", ["notes://today", "a:b", "x-y+z.1:/{id}", "urn:isbn:1", "notes://{a}/{b}?c={d}"])
def test_every_scheme_will_do(uri):
    assert resource(uri)(lambda: "")


# Prompts


def test_a_prompt_is_no_tool():
    @prompt
    def hello(name: str, times: int = 1) -> str:
        """Greet somebody.

        Args:
            name: Whom.
        """
        return f"Hello, {name}! " * times

    def add(a: int) -> int:
        """Add."""
        return a

    found = pack(hello, add)
    assert [spec.name for spec in found.tools] == ["shelf.add"]
    (one,) = found.prompts
    assert (one.name, one.title, one.spec.name) == ("hello", None, "shelf.hello")
    assert one.spec.hidden
    assert one.spec.description == "Greet somebody."
    assert one.spec.input_schema["required"] == ["name"]
    assert one.spec.input_schema["properties"]["name"]["description"] == "Whom."
    assert read(one, name="Ada", times=2).data == "Hello, Ada! Hello, Ada! "
    assert read(one).error.code == "invalid_args"


def test_a_prompt_may_have_another_name_and_a_title():
    @prompt(name="greeting", title="A greeting")
    def hello() -> str:
        """Greet."""
        return "Hello!"

    (one,) = pack(hello).prompts
    assert (one.name, one.title) == ("greeting", "A greeting")


def test_a_prompt_may_give_more_than_text():
    """What its hint says is not held against what it gives: the interface shapes it."""

    @prompt
    def talk() -> str:
        """Talk."""
        return [{"role": "user", "content": "Knock, knock."}]

    (one,) = pack(talk).prompts
    assert one.spec.output_schema is None
    assert read(one).data == [{"role": "user", "content": "Knock, knock."}]


# Resources


def test_text_bytes_and_data_are_told_apart():
    @resource("x:text")
    def words() -> str:
        return "words"

    @resource("x:bytes")
    def raw() -> bytes:
        return b"\x00\xff"

    @resource("x:data")
    def data() -> dict:
        return {"a": [1]}

    @resource("x:later")
    async def later() -> bytes:
        return b"later"

    @resource("x:nothing")
    def nothing() -> None:
        return None

    given = {one.uri: read(one).data for one in pack(words, raw, data, later, nothing).resources}
    assert given == {
        "x:text": {"text": "words"},
        "x:bytes": {"blob": "AP8="},
        "x:data": {"data": {"a": [1]}},
        "x:later": {"blob": "bGF0ZXI="},
        "x:nothing": {"data": None},
    }


def test_places_are_parameters():
    @resource("notes://{day}/{page}", name="note")
    def note(day: str, page: str, color: str = "red") -> str:
        """A note."""
        return f"{day} {page} {color}"

    (one,) = pack(note).resources
    assert (one.name, one.variables) == ("note", ("day", "page"))
    assert read(one, **one.match("notes://monday/2")).data == {"text": "monday 2 red"}


@pytest.mark.parametrize("uri", ["notes://today", "notes://{daay}", "notes://{day}/{page}"])
def test_places_that_are_no_parameters_are_a_mistake(uri):
    @resource(uri)
    def note(day: str) -> str:
        """A note."""
        return day

    found = pack(note)
    assert found.resources == ()
    (mistake,) = found.mistakes
    assert "are not its parameters ['day']" in mistake.message
    assert (mistake.key, mistake.file) == ("shelf.note", __file__)


def test_one_that_is_wrong_spoils_no_other():
    @resource("notes://{nothing}")
    def wrong() -> str:
        return ""

    @resource("notes://right")
    def right() -> str:
        return ""

    @tool
    def also_right() -> int:
        return 1

    found = pack(wrong, right, also_right)
    assert [one.uri for one in found.resources] == ["notes://right"]
    assert [one.name for one in found.tools] == ["shelf.also_right"]
    assert len(found.mistakes) == 1


def test_a_resource_that_fails_is_a_result_that_says_so():
    @resource("notes://broken")
    def broken() -> str:
        raise RuntimeError("it fell down")

    (one,) = pack(broken).resources
    assert "it fell down" in read(one).error.message
