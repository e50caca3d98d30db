"""A template and arguments become a request: where values stand, and how they are escaped there."""

import tracemalloc
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from helpers import each

from onetool.core.errors import BadArguments, ToolFailure
from onetool.http.allowed_hosts import AllowedHosts
from onetool.http.client import HttpContext
from onetool.http.definition import Request, RequestStep, ToolLimits
from onetool.http.placeholders import TemplateError
from onetool.http.template import RequestTemplate
from onetool.http.tool_request import ToolRequest
from onetool.http.url import HttpRequest

SECRETS = {"KEY": "k&e y", "HOST": "api.example.com", "LINES": "a\r\nb", "DOTS": ".."}


def template(url: str = "https://api.example.com/x", names: str = "", **request: Any) -> RequestTemplate:
    """One whose argSchema has the names that are given, parted by spaces."""
    schema = {"type": "object", "properties": {name: {} for name in names.split()}}
    return RequestTemplate(msgspec.convert({"urlTemplate": url, **request}, Request), schema)


def fill(url: str = "https://api.example.com/x", args: dict[str, Any] | None = None, **request: Any) -> HttpRequest:
    """With an argSchema that knows exactly these arguments, and those in `names`."""
    names = " ".join([*(args or {}), request.pop("names", "")])
    return template(url, names, **request).fill(args or {}, SECRETS.get)


def wrong(url: str = "https://api.example.com/x", names: str = "", **request: Any) -> str:
    """Where such a template is wrong."""
    with pytest.raises(TemplateError) as error:
        template(url, names, **request)
    return error.value.pointer


def test_arguments_and_secrets_in_all_places() -> None:
    outgoing = fill(
        "https://api.example.com/v1/${city}/${KEY}?u=${KEY}",
        {"city": "São Paulo", "n": 5},
        method="POST",
        query={"k": "${KEY}", "n": "${n}", "both": "${n}-${city}"},
        headers={"X-Key": "key ${KEY}", "X-N": "${n}"},
        body={"n": "${n}", "t": "n=${n}", "k": "${KEY}"},
    )
    assert outgoing.method == "POST"
    assert outgoing.url.text == (
        "https://api.example.com/v1/S%C3%A3o%20Paulo/k%26e%20y?u=k%26e%20y&k=k%26e%20y&n=5&both=5-S%C3%A3o%20Paulo"
    )
    assert outgoing.headers == [("X-Key", "key k&e y"), ("X-N", "5"), ("Content-Type", "application/json")]
    assert outgoing.body == b'{"n":5,"t":"n=5","k":"k&e y"}'


def test_a_request_without_placeholders() -> None:
    assert fill("https://api.example.com")[:4] == ("GET", ("https", "api.example.com", 443, "/"), [], b"")
    assert fill("HTTPS://API.example.com:8443/a?b#c").url.text == "https://api.example.com:8443/a?b"


MANY = "${a}" * 600
PARTS = {f"p{number}": "${a}" for number in range(600)}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
WORD: Any = "x" * 100_000
DATA: Any = [["x" * 100] * 1_000]


@each(
    ("given", "value"),
    [
        ({"urlTemplate": f"https://api.example.com/{MANY}"}, WORD),
        ({"query": PARTS}, WORD),
        ({"query": PARTS}, DATA),
        ({"headers": {"X-A": MANY}}, WORD),
        ({"headers": {f"X-{name}": text for name, text in PARTS.items()}}, WORD),
        ({"auth": {"type": "bearer", "value": MANY}}, WORD),
        ({"body": MANY, "headers": {"Content-Type": "text/plain"}}, WORD),
        ({"body": {"a": MANY}}, WORD),
        ({"body": {f"{name}${{a}}": 1 for name in PARTS}}, WORD),
        ({"body": PARTS}, WORD),
        ({"body": [*PARTS.values()]}, DATA),
        ({"body": PARTS, "headers": FORM}, WORD),
        ({"multipart": PARTS}, WORD),
        ({"multipart": PARTS}, DATA),
    ],
)
def test_a_value_that_stands_in_many_places(given: dict[str, Any], value: Any) -> None:
    request = msgspec.convert({"urlTemplate": "https://api.example.com", "method": "POST", **given}, Request)
    tool = ToolRequest(RequestStep(name="one", request=request), {"properties": {"a": {}}}, ToolLimits())
    nothing: Any = None
    context = HttpContext(nothing, AllowedHosts([]), nothing)
    tracemalloc.start()
    try:
        with pytest.raises(ToolFailure, match="makes the request larger than the tool may send") as error:
            tool.prepared({"a": value}, SECRETS.get, context)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert error.value.reason == "too_large"
    assert "the argument `a`" in str(error.value)


def test_its_secrets_are_known() -> None:
    assert template("https://a.example/${id}/${KEY}", "id", headers={"X": "${TOKEN}"}).secrets == {"KEY", "TOKEN"}


def test_a_name_of_the_schema_is_an_argument_and_nothing_else() -> None:
    """Neither takes the other's place, whoever gives more than the schema knows."""
    with pytest.raises(BadArguments, match="`KEY` is required"):
        template("https://a.example/${KEY}", "KEY").fill({}, SECRETS.get)
    outgoing = template("https://a.example/${KEY}", "id").fill({"id": 1, "KEY": "mine"}, SECRETS.get)
    assert outgoing.url.target == "/k%26e%20y"


def test_names_are_known_wherever_the_schema_says_them() -> None:
    schema = {
        "$ref": "#/$defs/all",
        "allOf": [{"properties": {"b": {}}}],
        "required": ["c"],
        "$defs": {"all": {"properties": {"a": {}}, "$ref": "#/$defs/all"}},
    }
    made = RequestTemplate(Request(url_template="https://a.example/${a}/${b}/${c}"), schema)
    assert made.secrets == frozenset()
    assert made.fill({"a": 1, "b": 2, "c": 3}, SECRETS.get).url.target == "/1/2/3"


def test_a_missing_secret_is_named_with_what_to_do() -> None:
    with pytest.raises(ToolFailure, match="the secret TOKEN is not set") as failure:
        fill("https://a.example/?k=${TOKEN}")
    assert not isinstance(failure.value, BadArguments)
    assert "onetool auth set TOKEN" in failure.value.hints[0]
    assert "argSchema" in failure.value.hints[1]


@pytest.mark.parametrize("name", ["shop_key", "openai", "OPENAI"])
def test_the_command_for_a_missing_secret_does_not_mean_a_provider(name: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        fill(f"https://a.example/?k=${{{name}}}")
    assert f"onetool auth set {name} --secret" in failure.value.hints[0]


def test_no_value_of_a_secret_is_in_a_message() -> None:
    for url, headers in (("https://a.example/${DOTS}", {}), ("https://a.example/", {"X": "${LINES}"})):
        with pytest.raises(ToolFailure, match=r"the secret (DOTS|LINES)") as failure:
            fill(url, headers=headers)
        assert not isinstance(failure.value, BadArguments)
        assert "a\r\nb" not in str(failure.value)


def test_one_pass() -> None:
    outgoing = fill(
        "https://a.example/${a}?q=${a}", {"a": "${KEY}", "b": "$${a}"}, method="POST", body={"a": "${a}${b}"}
    )
    assert outgoing.url.target == "/%24%7BKEY%7D?q=%24%7BKEY%7D"
    assert outgoing.body == b'{"a":"${KEY}$${a}"}'


def test_dollars_that_are_none() -> None:
    body = {"a": "$${x}", "b": "$$${n}", "c": "$ $5 $x {x}", "d": "$$$${x}"}
    assert fill(args={"n": 5}, method="POST", body=body).body == b'{"a":"${x}","b":"$5","c":"$ $5 $x {x}","d":"$${x}"}'


@each("text", ["${", "${a", "${}", "${a b}", "${x:-y}", "${file:/etc/passwd}", "${a${b}}", "a${\n}", '${a"}'])
def test_placeholders_that_are_none(text: str) -> None:
    assert wrong(f"https://a.example/?q={text}", "a b") == "/request/urlTemplate"
    assert wrong(headers={"X/Y": "v"}) == "/request/headers/X~1Y"
    assert wrong(headers={"X": text}, names="a b") == "/request/headers/X"
    assert wrong(query={"x/y": text}, names="a b") == "/request/query/x~1y"
    assert wrong(body={"x": [1, {"y": text}]}, names="a b") == "/request/body/x/1/y"


def test_names_of_arguments_may_have_any_characters() -> None:
    args = {"pet-id": 1, "filter[name]": "x", "$top": 2, "a/b?c#d": 3}
    outgoing = fill("https://a.example/${pet-id}/${a/b?c#d}?f=${filter[name]}&t=${$top}", args)
    assert outgoing.url.target == "/1/3?f=x&t=2"


@each(
    ("value", "segment"),
    [
        ("a/b", "a%2Fb"),
        ("//evil.test/x", "%2F%2Fevil.test%2Fx"),
        ("https://evil.test", "https%3A%2F%2Fevil.test"),
        ("..\\..\\admin", "..%5C..%5Cadmin"),
        ("../admin", "..%2Fadmin"),
        ("%2e%2e", "%252e%252e"),
        ("%2F", "%252F"),
        ("a?b=c", "a%3Fb%3Dc"),
        ("a#b", "a%23b"),
        ("@evil.test", "%40evil.test"),
        ("a;b,c:d&e+f", "a%3Bb%2Cc%3Ad%26e%2Bf"),
        ("1 HTTP/1.1\r\nX: y", "1%20HTTP%2F1.1%0D%0AX%3A%20y"),
        ("\x00\t\u2028", "%00%09%E2%80%A8"),
        ("é中😀", "%C3%A9%E4%B8%AD%F0%9F%98%80"),
        ("\uff0f", "%EF%BC%8F"),
        ("...", "..."),
        (" ..", "%20.."),
        ("..;", "..%3B"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (2**70, "1180591620717411303424"),
        (1.5, "1.5"),
        (1e22, "1e%2B22"),
    ],
)
def test_a_value_in_the_path_is_one_segment(value: Any, segment: str) -> None:
    assert fill("https://a.example/u/${v}/z", {"v": value}).url.target == f"/u/{segment}/z"


@pytest.mark.parametrize(
    "value",
    [
        "",
        ".",
        "..",
        None,
        ["a"],
        [],
        {"a": 1},
        {},
        float("nan"),
        float("inf"),
        pytest.param(10**5000, id="huge"),
        "\ud800",
        b"x",
        object(),
    ],
)
def test_values_that_no_path_can_have(value: Any) -> None:
    with pytest.raises(BadArguments, match="the argument `v`"):
        fill("https://a.example/u/${v}", {"v": value})


@each(
    ("path", "args"),
    [
        ("${a}${b}", {"a": ".", "b": "."}),
        (".${a}", {"a": "."}),
        ("%2e${a}", {"a": "."}),
        ("${a}%2E", {"a": "."}),
        ("${a};v=1", {"a": ".."}),
        ("${a}", {"a": "."}),
    ],
)
def test_no_segment_of_dots_is_put_together(path: str, args: dict[str, Any]) -> None:
    for after in ("", "/x", "?q=1"):
        with pytest.raises(BadArguments, match=r"only `\.` or `\.\.`"):
            fill(f"https://a.example/u/{path}{after}", args)


def test_dots_of_the_author_stay() -> None:
    assert fill("https://a.example/a/../b/${v}.json", {"v": ".."}).url.target == "/a/../b/...json"


def test_a_missing_argument_in_the_path_is_an_error() -> None:
    with pytest.raises(BadArguments, match="`id` is required: it is part of the URL's path"):
        template("https://a.example/${id}", "id").fill({}, SECRETS.get)


def test_queries() -> None:
    url = "https://a.example/s?q=${q}&fixed=a%20b+c&flag&${q}=1&list=${list}&no=${no}&part=x-${no}&empty="
    outgoing = fill(
        url, {"q": "a&b=c#d +é", "list": ["x&y", None, 2, True]}, names="no", query={"n": None, "l": [1, "${q}"]}
    )
    q = "a%26b%3Dc%23d%20%2B%C3%A9"
    assert outgoing.url.target == (f"/s?q={q}&fixed=a%20b+c&flag&{q}=1&list=x%26y&list=2&list=true&empty=&l=1&l={q}")


def test_a_query_of_which_nothing_is_left() -> None:
    assert fill("https://a.example/s?q=${q}", {"q": None}, query={"l": "${l}"}, names="l").url.target == "/s"
    assert fill("https://a.example/s?q=${q}", {"q": []}).url.target == "/s"
    assert fill("https://a.example/s?q=${q}", {"q": ""}).url.target == "/s?q="


def test_texts_of_the_query_object_are_data() -> None:
    outgoing = fill(query={"a b&": "c=d%20", "${k}": True, "n": 1.5}, args={"k": "x=y"})
    assert outgoing.url.target == "/x?a%20b%26=c%3Dd%2520&x%3Dy=true&n=1.5"


@pytest.mark.parametrize("value", [float("nan"), [float("nan")], {"a": "\ud800"}])
def test_values_that_no_query_can_have(value: Any) -> None:
    with pytest.raises(BadArguments, match="`v`"):
        fill("https://a.example/?q=${v}", {"v": value})


@pytest.mark.parametrize(
    ("value", "query"),
    [({"a": 1}, "q[a]=1"), ([["a"]], "q[0][0]=a"), ([{"a": 1}], "q[0][a]=1"), ({"]&": "="}, "q[]&]==")],
)
def test_what_is_nested_has_brackets(value: Any, query: str) -> None:
    assert unquote(fill("https://a.example/?q=${v}", {"v": value}).url.target) == f"/?{query}"


def test_a_list_repeats_its_key_only_when_it_stands_alone() -> None:
    for place in ("q=x${v}", "${v}=1"):
        with pytest.raises(BadArguments, match="is a list"):
            fill(f"https://a.example/?{place}", {"v": ["a"]})


def test_the_query_of_a_definition_that_is_none() -> None:
    assert wrong(query={"a": {"b": 1}}) == "/request/query/a"
    assert wrong(query={"a": [["b"]]}) == "/request/query/a"


def test_headers() -> None:
    headers = {"Accept": " text/plain\t", "X-A": "a ${a}", "X-N": "${n}", "X-No": "x${no}", "X-Null": "${null}"}
    outgoing = fill(args={"a": "b c", "n": True, "null": None}, names="no", headers=headers)
    assert outgoing.headers == [("Accept", "text/plain"), ("X-A", "a b c"), ("X-N", "true")]


@each(
    "value",
    ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "a\tb", "\x7f", "\x85", "\u2028", "嘍嘊", "é", ["a"], {"a": 1}],
)
def test_values_that_no_header_can_have(value: Any) -> None:
    with pytest.raises(BadArguments, match="`v`"):
        fill(args={"v": value}, headers={"X": "${v}"})


@each(
    "name",
    ["Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "TE", "Trailer", "Upgrade", "Expect",
     "Keep-Alive", "Proxy-Authorization", "Proxy-Connection",
     "", "a b", "a:b", "a\r\nb", "é", "${x}", "x(y)"],
)  # fmt: skip
def test_names_that_no_header_can_have(name: str) -> None:
    assert wrong(headers={name: "x"}, names="x").startswith("/request/headers/")


def test_headers_of_a_definition_that_are_none() -> None:
    assert wrong(headers={"X": "a\nb"}) == "/request/headers/X"
    assert wrong(headers={"X": "é"}) == "/request/headers/X"
    assert wrong(headers={"X-A": "1", "x-a": "2"}) == "/request/headers/x-a"
    assert wrong(headers={"Content-Type": "${t}"}, names="t") == "/request/headers/Content-Type"


def test_a_value_does_not_begin_another_cookie() -> None:
    headers = {"Cookie": "session=${s}; theme=dark"}
    assert fill(args={"s": "abc"}, headers=headers).headers == [("Cookie", "session=abc; theme=dark")]
    for value in ("abc; admin=1", "abc, admin=1"):
        for where in (headers, {"Cookie": "${s}"}):
            with pytest.raises(BadArguments, match="would end its cookie"):
                fill(args={"s": value}, headers=where)
    assert fill(args={"s": "a=b"}, headers={"Cookie": "${s}"}).headers == [("Cookie", "a=b")]


def test_a_secret_may_be_all_cookies() -> None:
    request = Request(url_template="https://a.example/", headers={"Cookie": "${ALL}"})
    assert RequestTemplate(request, {}).fill({}, lambda _: "a=1; b=2").headers == [("Cookie", "a=1; b=2")]


@each(
    ("url", "args", "host"),
    [
        ("https://${r}.example.com/", {"r": "EU"}, "eu.example.com"),
        ("https://api-${r}.example.com:8443/", {"r": "eu-1"}, "api-eu-1.example.com"),
        ("https://${a}.${b}/", {"a": "api", "b": "test"}, "api.test"),
        ("https://${h}/", {"h": "api.example.com."}, "api.example.com"),
        ("https://${HOST}/", {}, "api.example.com"),
        ("https://${n}.bücher.example/", {"n": 1}, "1.xn--bcher-kva.example"),
        ("https://1.2.3.${n}/", {"n": 4}, "1.2.3.4"),
    ],
)
def test_placeholders_in_hosts(url: str, args: dict[str, Any], host: str) -> None:
    assert fill(url, args).url.host == host


@each(
    "value",
    ["", ".", "a.b", "evil.test/", "evil.test\\", "evil.test#", "evil.test?", "x@evil.test", "evil.test:80", "a b",
    "a\n",      "%2e", "é", "ａ", "-a", "a-", "a_b", "a" * 64, "[::1]", "*", None, ["a"], {"a": 1}, "\x00", "a\u3002b"],
)  # fmt: skip
def test_a_label_is_one_label(value: Any) -> None:
    with pytest.raises(BadArguments, match="`v`"):
        fill("https://${v}.example.com/x", {"v": value})


@each(
    "value",
    [
        "",
        ".",
        "a..b",
        "a.b..",
        "evil.test/x",
        "u@evil.test",
        "a:80",
        "[::1]",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "-a.b",
    ],
)
def test_a_whole_host_is_a_host_and_no_more(value: str) -> None:
    with pytest.raises(BadArguments, match="`v`"):
        fill("https://${v}/x", {"v": value})


@each(
    "url",
    ["${u}", "${s}://a.example/", "http${s}://a.example/", "https:${u}", "https:/${u}", "https://a.example:${p}/",
     "https://a.example:8${p}/", "https://${u}@a.example/", "https://u:${u}@a.example/", "https://[${u}]/",
     "https://a.example/x#${u}", "ftp://${u}/", "https://a b/${u}", "https://a.example/%${u}", "https://a.example/%2${u}",
     "https://a.example/?q=%${u}", "https://a.example/a\\${u}", "https://a..${u}/", "https://${u}..b/",
     "https://${u}.0x7f/", "https://a.example/\ufdd0${u}", "//a.example/${u}", "/${u}", ""],
)  # fmt: skip
def test_urls_that_can_never_work(url: str) -> None:
    if not url:
        with pytest.raises(msgspec.ValidationError):
            template(url)
        return
    assert wrong(url, "u s p") == "/request/urlTemplate"
