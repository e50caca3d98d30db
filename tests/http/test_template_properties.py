"""What holds for every value there is."""

from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.core.errors import BadArguments
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.definition import Request
from onetool.http.errors import RequestRefusedError
from onetool.http.template import RequestTemplate
from onetool.http.url import parse_url

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(120))

# Half of them as an enemy would write them.
pieces = [
    "/",
    "\\",
    "..",
    ".",
    "%2e",
    "%",
    "#",
    "?",
    "&",
    "=",
    "@",
    ":",
    "\r\n",
    "\x00",
    " ",
    "+",
    ";",
    "${KEY}",
    '"',
    "\u2215",
    "。",
]
texts = st.text(max_size=20) | st.lists(st.sampled_from([*pieces, "evil.test", "a"]), max_size=8).map("".join)
numbers = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
SCHEMA = {"properties": {"v": {}, "w": {}}}


def made(url: str, **request: Any) -> RequestTemplate:
    return RequestTemplate(Request(url_template=url, **request), SCHEMA)


PATH = made("https://api.example.com:8443/a/${v}/x${w}y/b?c=1")
QUERY = made("https://api.example.com/?a=1&v=${v}&b=2", query={"w": "${w}"})
HOST = made("https://${v}.example.com/x")
BODY = made("https://api.example.com/", method="POST", body={"a": {"v": "${v}"}, "w": "x${w}", "z": [1]})
TEXT_BODY = made("https://api.example.com/", method="POST", body='{"a": {"v": ${v}}, "w": "x${w}", "z": [1]}')
FORM = made(
    "https://api.example.com/",
    method="POST",
    headers={"Content-Type": "application/x-www-form-urlencoded"},
    body="a=1&v=${v}&w=${w}",
)
HEADER = made("https://api.example.com/", headers={"X-V": "v ${v}"})


def none(name: str) -> None:
    raise AssertionError(f"nobody asked for {name}")


@patient
@given(texts | numbers, texts | numbers)
def test_a_value_in_a_path_is_always_within_its_segment(v: Any, w: Any) -> None:
    try:
        url = PATH.fill({"v": v, "w": w}, none).url
    except BadArguments:
        assert v in ("", ".", "..") or w == ""
        return
    assert url.origin == ("https", "api.example.com", 8443)
    assert parse_url(url.text) == url
    path, query = url.target.split("?")
    before, first, second, after = path[1:].split("/")
    assert (before, after, query) == ("a", "b", "c=1")
    assert unquote(first) == written(v)
    assert unquote(second) == f"x{written(w)}y"
    assert unquote(first) not in ("", ".", "..")


@patient
@given(texts | numbers, st.lists(texts | numbers, max_size=4))
def test_a_query_is_read_as_it_was_meant(v: Any, w: list[Any]) -> None:
    url = QUERY.fill({"v": v, "w": w}, none).url
    assert parse_url(url.text) == url
    expected = {"a": ["1"], "v": [written(v)], "b": ["2"]} | ({"w": [written(one) for one in w]} if w else {})
    assert parse_qs(url.target[2:], keep_blank_values=True, strict_parsing=True) == expected


@patient
@given(texts | numbers, st.lists(texts | numbers, max_size=4))
def test_so_is_a_form(v: Any, w: list[Any]) -> None:
    expected = {"a": ["1"], "v": [written(v)]} | ({"w": [written(one) for one in w]} if w else {})
    assert parse_qs(FORM.fill({"v": v, "w": w}, none).body.decode(), keep_blank_values=True) == expected


@patient
@given(values, texts | numbers)
def test_a_body_is_the_value(v: Any, w: Any) -> None:
    for template in (BODY, TEXT_BODY):
        body = template.fill({"v": v, "w": w}, none).body
        assert msgspec.json.decode(body) == {"a": {"v": v}, "w": f"x{written(w)}", "z": [1]}


@patient
@given(values)
def test_a_label_never_leaves_its_domain(v: Any) -> None:
    try:
        url = HOST.fill({"v": v}, none).url
    except BadArguments:
        return
    assert url.host.endswith(".example.com")
    assert url.host.count(".") == 2
    assert (url.scheme, url.port, url.target) == ("https", 443, "/x")
    assert AllowedHosts([HostRule("*.example.com")]).check(url)


@patient
@given(values)
def test_a_header_is_one_line(v: Any) -> None:
    try:
        headers = HEADER.fill({"v": v}, none).headers
    except BadArguments:
        return
    assert len(headers) == (v is not None)
    for name, value in headers:
        assert name == "X-V"
        assert value.isascii()
        assert value.isprintable()


@patient
@given(texts)
def test_no_url_passes_for_an_allowed_one(text: str) -> None:
    """Whatever is written before, behind or into it: only the host itself is that host."""
    hosts = AllowedHosts([HostRule("api.example.com")])
    for url in (f"https://{text}api.example.com/", f"https://api.example.com{text}", f"https://api.{text}example.com/"):
        try:
            read = parse_url(url)
            hosts.check(read)
        except RequestRefusedError:
            continue
        assert read.origin == ("https", "api.example.com", 443)
        assert url.lower().removeprefix("https://").removeprefix("api.example.com")[:1] in ("", "/", "?", "#", ".", ":")


def written(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else msgspec.json.encode(value).decode()
        if isinstance(value, bool)
        else str(value)
    )
