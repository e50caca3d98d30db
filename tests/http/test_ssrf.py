"""Every case of `data/ssrf.json`, and more of their kind, up to the dialling: verdict, URL, headers and body."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetool.core.errors import ToolFailure
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.definition import Request
from onetool.http.placeholders import TemplateError
from onetool.http.template import RequestTemplate
from onetool.http.url import HttpRequest

pytestmark = pytest.mark.attack("URLs")

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "ssrf.json").read_text())
# What is wrong with these is seen on the wire only: test_ssrf_wire has them, as it has all others.
ON_THE_WIRE = {"redirect", "upstream", "upstreamBody"}
PUBLIC = "93.184.216.34"
SECRET = "sesame-0815"


def made(case: dict[str, Any]) -> HttpRequest:
    """What would be sent, to an address that was checked."""
    request = {key: case[key] for key in ("urlTemplate", "method", "query", "headers", "body") if key in case}
    schema = {"properties": {name: {} for name in case["args"]}}
    outgoing = RequestTemplate(msgspec.convert(request, Request), schema).fill(case["args"], {"SECRET": SECRET}.get)
    hosts = AllowedHosts([rule(entry) for entry in case["allowedHosts"]])
    allowed_by = hosts.check(outgoing.url)
    for address in case.get("resolver", {}).get(outgoing.url.host, [[PUBLIC]])[0]:
        hosts.check_address(allowed_by, address, outgoing.url)
    return outgoing


def rule(entry: str | dict[str, Any]) -> HostRule:
    return HostRule(entry) if isinstance(entry, str) else HostRule(entry["host"], entry.get("allowPrivate", False))


def test_all_of_them_are_here() -> None:
    assert len(CASES) == 70


@pytest.mark.parametrize("case", [case for case in CASES if not ON_THE_WIRE & case.keys()], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    if case["expect"] == "reject":
        with pytest.raises((TemplateError, ToolFailure)) as refused:
            made(case)
        assert SECRET not in str(refused.value)
        return
    outgoing = made(case)
    assert outgoing.url.text == case.get("effectiveUrl", case["urlTemplate"])
    assert outgoing.body.decode() == case.get("effectiveBody", "")
    own = [("Content-Type", "application/json")] if outgoing.body else []
    assert outgoing.headers == [*case.get("headers", {}).items(), *own]


ALL = ["*"]
ONE = ["api.example.com"]


@pytest.mark.parametrize(
    ("url", "args", "allowed"),
    [
        ("http://localhost/", {}, ALL),
        ("http://localhost:22/", {}, ["localhost:22"]),
        ("http://[::1]/", {}, ALL),
        ("http://[::]/", {}, ALL),
        ("http://0.0.0.0/", {}, ALL),
        ("http://127.0.0.1.:80/", {}, ALL),
        ("http://[::ffff:169.254.169.254]/", {}, ALL),
        ("http://[64:ff9b::a9fe:a9fe]/", {}, ALL),
        ("http://[::127.0.0.1]/", {}, ALL),
        ("http://100.100.100.200/", {}, ALL),
        ("http://224.0.0.1/", {}, ALL),
        ("http://0xa9fea9fe/", {}, ALL),
        ("http://0251.0376.0251.0376/", {}, ALL),
        ("http://①②⑦.⓪.⓪.①/", {}, ALL),
        ("http://${h}/", {"h": "127.0.0.1"}, ALL),
        ("http://${h}/", {"h": "169.254.169.254"}, ALL),
        ("http://${h}/", {"h": "localhost"}, ALL),
        ("http://${h}/", {"h": "metadata.google.internal"}, ALL),
        ("http://127.0.0.${n}/", {"n": 1}, ALL),
        ("http://${a}${b}/", {"a": "local", "b": "host"}, ALL),
        ("https://${h}.example.com/", {"h": "evil.test/."}, ["*.example.com"]),
        ("https://${h}.example.com/", {"h": "evil.test#"}, ["*.example.com"]),
        ("https://${h}.example.com/", {"h": "evil.test?"}, ["*.example.com"]),
        ("https://${h}.example.com/", {"h": "evil.test:80@"}, ["*.example.com"]),
        ("https://example.${tld}/", {"tld": "test"}, ["example.com"]),
        ("https://api.example.com:${p}/", {"p": 22}, ["api.example.com:22"]),
        ("https://api.example.com${p}/", {"p": "@evil.test"}, ONE),
        ("https://api.example.com${p}", {"p": ".evil.test"}, ONE),
        ("https://api.example.com${p}", {"p": "/x"}, ONE),
        ("${scheme}://api.example.com/", {"scheme": "https"}, ONE),
        ("https://api.example.com\\.evil.test/", {}, ONE),
        ("https://evil.test#.api.example.com/", {}, ONE),
        ("https://evil.test?.api.example.com/", {}, ONE),
        ("https://evil.test/.api.example.com/", {}, ONE),
        ("https://api.example.com:443:80/", {}, ONE),
        ("gopher://api.example.com/", {}, ONE),
        ("https://api.example.com/x", {}, []),
        ("https://api.example.com/x", {}, [""]),
        ("https://api.example.com/x", {}, ["https://api.example.com"]),
        ("https://api.example.com/x", {}, ["*api.example.com"]),
        ("https://api.example.com/x", {}, [{"host": "api.example.com:80", "allowPrivate": True}]),
    ],
)
def test_more_that_is_refused(url: str, args: dict[str, Any], allowed: list[Any]) -> None:
    with pytest.raises((TemplateError, ToolFailure)):
        made({"urlTemplate": url, "args": args, "allowedHosts": allowed})


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.5"], [PUBLIC, "127.0.0.1"], ["::1", PUBLIC], ["fe80::1%eth0"], ["::ffff:10.0.0.5"], ["0.0.0.0"], [""]],
)
def test_names_that_lead_here_are_refused(addresses: list[str]) -> None:
    """One public address among them does not help."""
    case = {
        "urlTemplate": "https://a.test/",
        "args": {},
        "allowedHosts": ["a.test"],
        "resolver": {"a.test": [addresses]},
    }
    with pytest.raises(ToolFailure, match=r"a\.test resolves to"):
        made(case)


@pytest.mark.parametrize(
    ("url", "args", "allowed", "effective"),
    [
        ("https://api.example.com./x", {}, ONE, "https://api.example.com/x"),
        ("https://API.EXAMPLE.COM/x", {}, ONE, "https://api.example.com/x"),
        ("https://${h}/x", {"h": "api.example.com"}, ONE, "https://api.example.com/x"),
        ("https://${h}.example.com/x", {"h": "api"}, ["*.example.com"], "https://api.example.com/x"),
        ("https://8.8.8.8/${p}", {"p": "@10.0.0.1"}, ALL, "https://8.8.8.8/%4010.0.0.1"),
        ("https://api.example.com/${p}", {"p": "${SECRET}"}, ONE, "https://api.example.com/%24%7BSECRET%7D"),
        ("https://api.example.com/?u=${u}", {"u": "http://[::1]/"}, ONE, "https://api.example.com/?u=http%3A%2F%2F%5B%3A%3A1%5D%2F"),
        ("http://localhost:9000/x", {}, [{"host": "localhost:9000", "allowPrivate": True}], "http://localhost:9000/x"),
    ],
)  # fmt: skip
def test_more_that_is_allowed(url: str, args: dict[str, Any], allowed: list[Any], effective: str) -> None:
    assert made({"urlTemplate": url, "args": args, "allowedHosts": allowed}).url.text == effective
