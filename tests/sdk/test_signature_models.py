"""Pydantic's models and types, and hints that other libraries annotate."""

import subprocess
import sys
from datetime import date
from typing import Annotated, Generic, Literal, Optional, TypeVar

import pydantic
import pytest
from helpers import each
from pydantic import BaseModel, BeforeValidator, Field, RootModel

from onetool.core.errors import BadArguments
from onetool.sdk.pack import tool_from_function

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


def spec_of(hint):
    """A tool that gives back its argument as it got it."""

    def f(x):
        return x

    f.__annotations__ = {"x": hint}
    return tool_from_function(f, "p")


def property_of(hint):
    return spec_of(hint).input_schema["properties"]["x"]


class Address(BaseModel):
    street: str
    since: date | None = None


class Person(BaseModel, strict=True):
    name: Annotated[str, Field(min_length=2)]
    born: date
    home: Address | None = None

    @pydantic.field_validator("name")
    @classmethod
    def no_digits(cls, name: str) -> str:
        if any(char.isdigit() for char in name):
            raise ValueError("a name has no digits")
        return name


class Folder(BaseModel):
    name: str
    inside: "list[Folder]" = []


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


class Numbers(RootModel[list[int]]): ...


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@pydantic.dataclasses.dataclass
class Spot:
    when: date


def test_a_model_is_described_by_itself():
    own = Person.model_json_schema()
    schema = spec_of(Person).input_schema
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Person"}
    assert schema["$defs"] == {"Address": own.pop("$defs")["Address"], "Person": own}


@pytest.mark.parametrize("hint", [list[Person], Optional[Person], dict[str, Person | None]])  # noqa: UP045
def test_a_model_may_stand_inside_of_a_hint(hint):
    assert list(spec_of(hint).input_schema["$defs"]) == ["Address", "Person"]


def test_a_model_that_two_hints_use_is_defined_once():
    def f(a: Person, b: Address, c: list[Address]): ...

    assert list(tool_from_function(f, "p").input_schema["$defs"]) == ["Address", "Person"]


def test_two_models_of_one_name_are_two_definitions():
    other = pydantic.create_model("Address", zip=(int, ...))
    outer = pydantic.create_model("Outer", at=(other, ...))

    def f(a, b): ...

    f.__annotations__ = {"a": Address, "b": outer}
    definitions = tool_from_function(f, "p").input_schema["$defs"]
    assert definitions["Outer"]["properties"]["at"] == {"$ref": "#/$defs/Address2"}
    assert list(definitions["Address2"]["properties"]) == ["zip"]


def test_a_model_may_contain_itself():
    spec = spec_of(Folder)
    assert spec.arguments.check({"x": {"name": "a", "inside": [{"name": "b"}]}}) == []
    assert spec.handler(x={"name": "a", "inside": [{"name": "b"}]}) == Folder(name="a", inside=[Folder(name="b")])


@each(
    ("hint", "json", "value"),
    [
        (Person, {"name": "Ada", "born": "1815-12-10"}, Person(name="Ada", born=date(1815, 12, 10))),
        (list[Address], [{"street": "a"}], [Address(street="a")]),
        (Address | None, None, None),
        (Page[int], {"items": [1]}, Page[int](items=[1])),
        (Numbers, [1, 2], Numbers([1, 2])),
        (Cat | Dog, {"kind": "dog"}, Dog(kind="dog")),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, Dog(kind="dog")),
        (Spot, {"when": "2026-01-31"}, Spot(date(2026, 1, 31))),
        (pydantic.SecretStr, "s", pydantic.SecretStr("s")),
        (pydantic.HttpUrl, "https://example.com/", pydantic.HttpUrl("https://example.com/")),
        (Annotated[int, BeforeValidator(len)], "abc", 3),
    ],
)
def test_json_becomes_the_model(hint, json, value):
    assert spec_of(hint).handler(x=json) == value


def test_a_model_says_itself_what_is_wrong():
    with pytest.raises(BadArguments, match=r"^x\[0\]\.name: a name has no digits$"):
        spec_of(list[Person]).handler(x=[{"name": "R2", "born": "1977-05-25"}])


def test_what_pydantic_expects_is_said_without_its_jargon():
    with pytest.raises(BadArguments, match=r"^x\.since: expected a valid date"):
        spec_of(Address).handler(x={"street": "a", "since": "soon"})


@each(
    ("field", "schema"),
    [
        (Field(description="how many"), {"description": "how many"}),
        (Field(ge=1, le=9), {"minimum": 1, "maximum": 9}),
        (Field(gt=1, lt=9, multiple_of=2), {"exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 2}),
        (Field(title="N", examples=[3]), {"title": "N", "examples": [3]}),
        (Field(json_schema_extra={"deprecated": True}), {"deprecated": True}),
    ],
)
def test_a_field_inside_of_annotated_constrains_a_number(field, schema):
    assert property_of(Annotated[int, field]) == INTEGER | schema


def test_a_field_inside_of_annotated_constrains_text():
    found = property_of(Annotated[str, Field(pattern="^a", min_length=1, max_length=3)])
    assert found == TEXT | {"pattern": "^a", "minLength": 1, "maxLength": 3}


def test_a_constrained_number_is_refused_by_the_schema():
    assert spec_of(Annotated[int, Field(ge=1)]).arguments.check({"x": 0})[0].expected == "at least 1"


def test_words_about_a_value_that_may_be_null_stand_above_it():
    found = property_of(Annotated[str, Field(description="who", max_length=9)] | None)
    assert found == {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "description": "who"}


def test_a_field_as_a_default_is_told():
    def f(x: int = Field(5, ge=1)): ...

    with pytest.raises(TypeError, match=r"^parameter 'x': .*: write it into the hint"):
        tool_from_function(f, "p")


class Opaque: ...


def test_a_model_that_can_not_be_described_is_told():
    strange = pydantic.create_model("Strange", __config__={"arbitrary_types_allowed": True}, it=(Opaque, ...))
    with pytest.raises(TypeError, match="parameter 'x': Strange can't be represented in JSON: pydantic reports: "):
        spec_of(strange)


def test_nobody_imports_pydantic_for_a_pack_that_does_not():
    code = (
        "import sys; from onetool.sdk.pack import tool_from_function\n"
        "def f(a: int, b: list[str]) -> dict[str, int]: ...\n"
        "tool_from_function(f, 'p'); sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
