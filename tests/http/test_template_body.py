"""Bodies of templates: JSON, forms, texts."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from helpers import calls, each

from onetool.core.errors import BadArguments
from onetool.http.definition import Request
from onetool.http.placeholders import TemplateError
from onetool.http.template import RequestTemplate
from onetool.http.url import HttpRequest
from onetool.services.secrets import Secret

FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
HOSTILE = '","admin":true,"x":"'


def fill(body: Any, args: dict[str, Any], headers: dict[str, str] | None = None, **types: Any) -> HttpRequest:
    """With an argSchema of the arguments that are given, and of those that `types` names."""
    request = {"urlTemplate": "https://a.example/", "method": "POST", "body": body, "headers": headers or {}}
    schema = {"properties": {name: {} for name in args} | {name: {"type": kind} for name, kind in types.items()}}
    return RequestTemplate(msgspec.convert(request, Request), schema).fill(args, {"KEY": "k\"e'y"}.get)


def body(body: Any, args: dict[str, Any], headers: dict[str, str] | None = None, **types: Any) -> bytes:
    return fill(body, args, headers, **types).body


@each(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**63,
        1.5,
        "",
        "x",
        HOSTILE,
        "${KEY}",
        "é😀\u2028\x00",
        [],
        [1, "a"],
        {},
        {"a": {"b": [None]}},
    ],
)
def test_a_member_that_is_one_placeholder_keeps_its_type(value: Any) -> None:
    for template in ({"a": {"v": "${v}"}}, '{"a": {"v": "${v}"}}', '{"a": {"v": ${v}}}'):
        assert msgspec.json.decode(body(template, {"v": value})) == {"a": {"v": value}}


def test_part_of_a_string() -> None:
    made = body('{"name": "<${v}> ${n} ${b}", "${v}": 1}', {"v": HOSTILE, "n": 1, "b": False})
    assert msgspec.json.decode(made) == {"name": f"<{HOSTILE}> 1 false", HOSTILE: 1}


def test_a_secret_that_hides_itself_is_sent() -> None:
    request = Request(url_template="https://a.example/", method="POST", body={"k": "${KEY}", "l": "x${KEY}"})
    made = RequestTemplate(request, {}).fill({}, lambda _: Secret("sesame"))
    assert made.body == b'{"k":"sesame","l":"xsesame"}'


def test_absent_members_are_dropped() -> None:
    template = {"a": "${a}", "b": "x${a}", "c": ["${a}", 1, ["${a}"]], "d": {"e": "${a}"}, "${a}": 2, "n": None}
    assert body(template, {}, a="string") == b'{"c":[1,[]],"d":{},"n":null}'


def test_null_is_kept_where_it_has_a_type_and_drops_what_it_is_part_of() -> None:
    assert body({"a": "${a}", "b": "x${a}"}, {"a": None}) == b'{"a":null}'


def test_a_value_does_not_replace_a_member() -> None:
    with pytest.raises(BadArguments, match="'role' twice"):
        body({"role": "user", "${k}": "admin"}, {"k": "role"})


@pytest.mark.parametrize(
    "value", ["\ud800", ["\ud800"], float("nan"), float("-inf"), pytest.param(10**5000, id="huge")]
)
def test_values_that_json_does_not_have(value: Any) -> None:
    with pytest.raises(BadArguments):
        body({"v": "${v}"}, {"v": value})


def test_a_value_that_is_nested_too_deep() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadArguments, match="nested too deep"):
        body({"v": "${v}"}, {"v": deep})
    while deep:  # or its end would be as deep
        deep = deep.pop()


def test_lists_and_objects_are_no_part_of_a_string() -> None:
    with pytest.raises(BadArguments, match="is an object"):
        body({"v": "x ${v}"}, {"v": {}})


def test_the_type_of_the_content() -> None:
    own = {"Content-Type": "application/vnd.api+json"}
    assert fill({"a": 1}, {}).headers == [("Content-Type", "application/json")]
    assert fill({"a": 1}, {}, own).headers == [*own.items()]
    assert fill("hello", {}).headers == [("Content-Type", "text/plain; charset=utf-8")]
    assert fill(None, {}).headers == []
    assert fill([1, 2], {}).body == b"[1,2]"
    assert fill(5, {}).body == b"5"
    assert fill('"${v}"', {"v": HOSTILE}, own).body == msgspec.json.encode(HOSTILE)
    assert fill("${v}", {"v": {"a": 1}}, own).body == b'{"a":1}'


def test_a_body_that_is_one_placeholder() -> None:
    """A text is sent as it is, anything else as JSON; an absent one is not a body at all."""
    assert fill("${v}", {"v": {"a": 1}}).body == b'{"a":1}'
    assert fill("${v}", {"v": "a\nb"}, v="string")[2:4] == ([("Content-Type", "text/plain; charset=utf-8")], b"a\nb")
    assert fill("${v}", {}, v="string")[2:4] == ([], b"")
    assert fill("${v}", {}, v="object")[2:4] == ([], b"")


def test_other_texts_have_their_values_as_they_are() -> None:
    assert body("a ${v}, {${n}}\n", {"v": 'é"\n', "n": 1}) == 'a é"\n, {1}\n'.encode()
    assert body("query { a(id: ${v}) }", {"v": 1}) == b"query { a(id: 1) }"
    with pytest.raises(BadArguments, match="`v` is required: it is part of the body"):
        body("a ${v}", {}, v="string")


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl", "application/json-seq"])
def test_several_json_values_are_one_argument(kind: str) -> None:
    headers = {"Content-Type": kind}
    made = fill("${v}", {"v": '{"a": 1}\n[2]\n'}, headers, v="string")
    assert (made.headers, made.body) == ([*headers.items()], b'{"a": 1}\n[2]\n')
    assert body('{"q": "${v}"}', {"v": 'a"}\n'}, headers) == msgspec.json.encode({"q": 'a"}\n'})


@each(
    ("text", "kind"),
    [
        ('{"a": "${v}"} and more', "application/json"),
        ('{"a": "${v}"} and more', "application/x-ndjson"),
        ('{"a":\n"${v}"}\n{}', "application/jsonl"),
        ("${v} ${v}", "application/json-seq"),
        ("1\n2", "application/x-ndjson"),
        ('{"a": "${v}"}  x', None),
        ('[${v}]\n{"b": 1}', None),
    ],
)
def test_json_with_more_after_it_is_refused(text: str, kind: str | None) -> None:
    with pytest.raises(TemplateError, match="JSON") as error:
        fill(text, {"v": 1}, {"Content-Type": kind} if kind else {})
    assert error.value.pointer == "/request/body"


def test_texts_that_only_look_like_json() -> None:
    assert body("[info] ${v}", {"v": "x"}) == b"[info] x"
    assert body("[1] ${v}", {"v": "x"}) == b"[1] x"
    assert body('{"a": "${v}"} x', {"v": '"'}, {"Content-Type": "text/plain"}) == b'{"a": """} x'


def test_xml() -> None:
    headers = {"Content-Type": "text/xml"}
    assert body('<a b="${v}"/>', {"v": '"/><evil>&'}, headers) == b'<a b="&quot;/&gt;&lt;evil&gt;&amp;"/>'


def test_forms() -> None:
    value = "a&admin=1 +é%"
    assert body("v=${v}&fixed=a+b&no=${no}&${v}=1", {"v": value}, FORM, no="string") == (
        b"v=a%26admin%3D1%20%2B%C3%A9%25&fixed=a+b&a%26admin%3D1%20%2B%C3%A9%25=1"
    )
    assert body({"v": "${v}", "l": "${l}", "k": "${KEY}", "n": 1}, {"v": value, "l": ["x", 2]}, FORM) == (
        b"v=a%26admin%3D1%20%2B%C3%A9%25&l=x&l=2&k=k%22e%27y&n=1"
    )
    assert fill({"a": 1}, {}, FORM).headers == [*FORM.items()]


def test_bodies_that_can_never_work() -> None:
    for wrong, headers in (
        ("{a: ${v}", {"Content-Type": "application/json"}),
        ([1], FORM),
        ("100%", FORM),
        ({"a": {"b": 1}}, FORM),
        ("--x\n${v}", {"Content-Type": "multipart/form-data; boundary=x"}),
    ):
        with pytest.raises(TemplateError) as error:
            fill(wrong, {"v": 1}, headers)
        assert error.value.pointer.startswith("/request/body")


HOSTILE_TEXTS: dict[str, Callable[[int], str]] = {
    "dollars": lambda size: "$" * size,
    "placeholders": lambda size: "${" * size,
    "quotes": lambda size: '"\\"' * size + "\\",
    "an open string": lambda size: "{" + '"' * size,
    "brackets": lambda size: "[" * size,
}


@pytest.mark.long
@pytest.mark.parametrize("kind", HOSTILE_TEXTS)
def test_a_hostile_text_takes_no_square_of_time(kind: str) -> None:
    text = HOSTILE_TEXTS[kind](300_000)  # the square of which would take for ever
    with calls(3_000_000), suppress(TemplateError):
        fill(text, {})
