"""The typed reader: every type, every mismatch in the same words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from helpers import each
from msgspec import Meta

from onetool.config.check import BAD, convert
from onetool.config.findings import Findings, Places
from onetool.core.yaml import read
from onetool.services.secrets import Secret


class Point(msgspec.Struct, kw_only=True):
    x: int
    y: int = 0


class Pasted(msgspec.Struct, kw_only=True, rename="camel"):
    lenient: ClassVar[bool] = True
    max_size: int = 1


class Named(msgspec.Struct, kw_only=True):
    shorthand: ClassVar[str] = "name"
    name: Annotated[str, Meta(min_length=1)]
    size: int = 1


class Range(msgspec.Struct, kw_only=True):
    low: int
    high: int

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.low > self.high:
            yield "high", "must not be less than low", "swap them"


def converted(text: str, wanted: Any) -> tuple[Any, Findings]:
    document = read(text)
    findings = Findings(Places("/folder/x.yaml", document.lines))
    return convert(document.data, wanted, "", findings), findings


def value_of(text: str, wanted: Any) -> Any:
    value, findings = converted(text, wanted)
    assert findings.errors == []
    assert value is not BAD
    return value


def errors_of(text: str, wanted: Any) -> list[tuple[str | None, str, str | None]]:
    _, findings = converted(text, wanted)
    return [(error.key, error.message, error.hint) for error in findings.errors]


@each(
    ("text", "wanted", "value"),
    [
        ("abc", str, "abc"),
        ("no", str, "no"),
        ("5", int, 5),
        ("5", float, 5.0),
        ("1.5", float, 1.5),
        ("true", bool, True),
        ("~", str | None, None),
        ("abc", str | None, "abc"),
        ("{a: [1, x]}", Any, {"a": [1, "x"]}),
        ("[1, 2]", list[int], [1, 2]),
        ("[1, 2]", tuple[int, ...], (1, 2)),
        ("~", tuple[int, ...], ()),
        ("~", tuple[int, ...] | None, None),
        ("{a: 1}", dict[str, int], {"a": 1}),
        ("~", dict[str, int], {}),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
        ("{x: 1}", Point, Point(x=1)),
        ("{a: {x: 1, y: 2}}", dict[str, Point], {"a": Point(x=1, y=2)}),
        ("[1, a]", tuple[int | str, ...], (1, "a")),
        ("tea", Named, Named(name="tea")),
        ("{name: tea, size: 2}", Named, Named(name="tea", size=2)),
        ("{maxSize: 7}", Pasted, Pasted(max_size=7)),
        ("~", Pasted, Pasted()),
        ("packs", Path, Path("/folder/packs")),
        ("/other/packs", Path, Path("/other/packs")),
        ("0", Annotated[int, Meta(ge=0, le=9)] | None, 0),
    ],
)
def test_values(text: str, wanted: Any, value: Any) -> None:
    assert value_of(text, wanted) == value
    assert type(value_of(text, wanted)) is type(value)


@each(
    ("text", "wanted", "message", "hint"),
    [
        ("abc", int, "expected a whole number, got the string 'abc'", None),
        ("1.5", int, "expected a whole number, got the number 1.5", None),
        ("true", int, "expected a whole number, got true", None),
        ("'5'", int, "expected a whole number, got the string '5'", "write it without quotes"),
        ("010", int, "expected a whole number, got the string '010'", None),
        ("1_000", int, "expected a whole number, got the string '1_000'", None),
        ("[1]", float, "expected a number, got a list of 1 item", None),
        (".inf", float, "expected a number, got the number inf", None),
        ("9" * 400, float, f"expected a number, got the number {'9' * 39}…", None),
        ("yes", bool, "expected true or false, got the string 'yes'", None),
        ("'true'", bool, "expected true or false, got the string 'true'", "write it without quotes"),
        ("1", bool, "expected true or false, got the number 1", None),
        ("5", str, "expected a string, got the number 5", "quote it"),
        ("true", str | None, "expected a string, got true", "quote it"),
        ("{a: 1}", str, "expected a string, got a mapping with a", None),
        ("~", str, "expected a string, got nothing", "write a value, or remove the key to get its default"),
        ("abc", tuple[str, ...], "expected a list, got the string 'abc'", "write a list: [value]"),
        ("[1]", dict[str, int], "expected a mapping, got a list of 1 item", None),
        ("tea", Literal["first", "last"], "expected first or last, got the string 'tea'", None),
        ("frist", Literal["first", "last"], "expected first or last, got the string 'frist'", "did you mean first?"),
        ("[1]", int | str | None, "expected a whole number or a string, got a list of 1 item", None),
        ("5", Named, "expected a mapping or a string, got the number 5", "quote it"),
        ("5", Path, "expected a path, got the number 5", "quote it"),
        ("''", Path, "this is not a path", "write the name of a file or a folder"),
        (r'"a\0b"', Path, "this is not a path", "write the name of a file or a folder"),
        ("12345", Secret, "expected a string, got a number", "quote it"),
        ("70000", Annotated[int, Meta(ge=0, le=65535)], "must be from 0 to 65535, got the number 70000", None),
        ("0", Annotated[int, Meta(ge=1)], "must be at least 1, got the number 0", None),
        ("-1", Annotated[float, Meta(gt=0)], "must be more than 0, got the number -1", None),
        ("''", Annotated[str, Meta(min_length=1)], "must not be empty", None),
        ("x" * 99, int, f"expected a whole number, got the string '{'x' * 39}…'", None),
    ],
)  # fmt: skip
def test_mismatches(text: str, wanted: Any, message: str, hint: str | None) -> None:
    assert errors_of(f"k: {text}", dict[str, wanted]) == [("k", message, hint)]


def test_structs_name_what_is_unknown_and_what_is_missing() -> None:
    assert errors_of("{z: 1}", Point) == [
        ("z", "unknown key 'z'", "known keys: x, y"),
        (None, "the key 'x' is missing", "add x: …"),
    ]
    assert errors_of("{max_size: 1, maxsize: 2}", msgspec.defstruct("S", [("maxSize", int, 0)])) == [
        ("max_size", "unknown key 'max_size'", "did you mean maxSize?"),
        ("maxsize", "unknown key 'maxsize'", "did you mean maxSize?"),
    ]


def test_a_lenient_struct_warns() -> None:
    value, findings = converted("{maxsize: 3}", Pasted)
    assert value == Pasted()
    (warning,) = findings.warnings
    assert (warning.key, warning.severity, warning.hint) == ("maxsize", "warning", "did you mean maxSize?")
    assert findings.errors == []


def test_checks_across_fields() -> None:
    assert errors_of("{low: 2, high: 1}", Range) == [("high", "must not be less than low", "swap them")]


def test_every_mistake_is_found() -> None:
    errors = errors_of("{a: {x: b, y: c}, b: [], c: {y: 1}}", dict[str, Point])
    assert [key for key, *_ in errors] == ["a.x", "a.y", "b", "c"]


def test_a_tilde_in_a_path_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert value_of("~/packs", Path) == Path("/home/me/packs")


def test_a_literal_token_hides_itself() -> None:
    token = value_of("sesame", Secret)
    assert token == "sesame"
    assert repr(token) == "'***'"
