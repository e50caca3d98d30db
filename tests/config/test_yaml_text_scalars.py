"""What unquoted words mean, and which of them are traps."""

import math

import pytest
from helpers import each

from onetool.config.yaml_nodes import ConfigFileError, plain_value, tagged_value, yaml_1_1_advice


@each(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+5", 5), ("0o17", 15), ("0xFf", 255), ("12345678901234567890", 12345678901234567890),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015), (".inf", math.inf),
        ("-.INF", -math.inf),
    ],
)  # fmt: skip
def test_values_of_the_core_schema(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)
    assert yaml_1_1_advice(text) is None


def test_not_a_number_is_one() -> None:
    assert math.isnan(plain_value(".nan"))  # pyright: ignore[reportArgumentType]


@each(
    "text",
    ["2024-01-01", "2024-01-01T10:00:00Z", "y", "n", "tRUE", "nan", "inf", "0o8", "0xg", "1.2.3", "127.0.0.1", "-",
     "+", ".", "e5", "8080:80", "=", "١"],
)  # fmt: skip
def test_texts_that_stay_texts(text: str) -> None:
    assert plain_value(text) == text
    assert yaml_1_1_advice(text) is None


@pytest.mark.parametrize("text", ["yes", "No", "ON", "off"])
def test_old_booleans_are_texts_with_advice(text: str) -> None:
    assert plain_value(text) == text
    assert yaml_1_1_advice(text) == "write true or false"


@each("text", ["010", "00", "08", "-012", "1:30", "12:30:45", "1_000", "0b101"])
def test_old_numbers_are_texts_with_advice(text: str) -> None:
    assert plain_value(text) == text
    assert yaml_1_1_advice(text) == "write the number in plain digits"


@each(
    ("text", "tag", "message"),
    [
        ("9" * 5000, "plain", "a number of 5000 digits is too long"),
        ("0x" + "f" * 4998, "plain", "a number of 5000 digits is too long"),
        ("abc", "tag:yaml.org,2002:int", "does not match its tag !!int"),
        ("abc", "!secret", "unknown tag after '!'"),
        ("\ud83d", "tag:yaml.org,2002:str", "a lone surrogate"),
    ],
)
def test_scalars_without_a_value(text: str, tag: str, message: str) -> None:
    with pytest.raises(ConfigFileError, match=message) as caught:
        tagged_value(text, tag)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_tags_that_are_known() -> None:
    assert tagged_value("5", "tag:yaml.org,2002:str") == "5"
    assert tagged_value("5", "tag:yaml.org,2002:float") == 5
    assert tagged_value("\ud83d\ude00", "tag:yaml.org,2002:str") == "😀"
