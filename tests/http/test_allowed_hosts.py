"""`allowedHosts`: who may be called."""

import pytest
from helpers import each

from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.errors import RequestRefusedError
from onetool.http.url import parse_url


def hosts(*entries: str | HostRule) -> AllowedHosts:
    return AllowedHosts([HostRule(entry) if isinstance(entry, str) else entry for entry in entries])


@each(
    ("entry", "url"),
    [
        ("api.example.com", "https://api.example.com/x"),
        ("api.example.com", "http://api.example.com/x"),
        ("API.example.com.", "https://api.EXAMPLE.com./x"),
        ("api.example.com", "https://api.example.com:443/"),
        ("api.example.com:443", "https://api.example.com/"),
        ("api.example.com:8080", "http://api.example.com:8080/"),
        ("bücher.example", "https://xn--bcher-kva.example/"),
        ("xn--bcher-kva.example", "https://bücher.example/"),
        ("*.example.com", "https://api.example.com/"),
        ("*.example.com", "https://a.b.example.com/"),
        ("*.bücher.example", "https://a.xn--bcher-kva.example/"),
        ("*.example.com:8080", "https://a.example.com:8080/"),
        ("*", "https://anything.example/"),
        ("*", "https://8.8.8.8/"),
        ("8.8.8.8", "https://8.8.8.8/"),
        ("[2606:2800::1]", "https://[2606:2800:0::1]/"),
        ("2606:2800::1", "https://[2606:2800::1]/"),
        ("[2606:2800::1]:81", "http://[2606:2800::1]:81/"),
    ],
)
def test_allowed(entry: str, url: str) -> None:
    assert hosts("other.example", entry).check(parse_url(url)) == HostRule(entry)


@each(
    ("entry", "url"),
    [
        ("api.example.com", "https://example.com/"),
        ("api.example.com", "https://a.api.example.com/"),
        ("api.example.com", "https://xapi.example.com/"),
        ("api.example.com", "https://api.example.com.evil.test/"),
        ("api.example.com", "https://apiXexample.com/"),
        ("api.example.com", "https://api.example.com:8443/"),
        ("api.example.com", "http://api.example.com:443/"),
        ("api.example.com", "https://аpi.example.com/"),
        ("api.example.com:8080", "https://api.example.com/"),
        ("api.example.com:443", "http://api.example.com/"),
        ("*.example.com", "https://example.com/"),
        ("*.example.com", "https://xexample.com/"),
        ("*.example.com", "https://a.example.com:81/"),
        ("*.example.com:81", "https://a.example.com/"),
        ("strasse.example", "https://straße.example/"),
        ("8.8.8.8", "https://[::ffff:8.8.8.8]/"),
    ],
)
def test_not_allowed(entry: str, url: str) -> None:
    with pytest.raises(RequestRefusedError, match="not in allowedHosts") as refused:
        hosts(entry).check(parse_url(url))
    assert "onetool hosts allow" in refused.value.hints[0]
    assert refused.value.reason == "denied"


def test_nothing_is_allowed_when_nothing_is_said() -> None:
    with pytest.raises(RequestRefusedError) as refused:
        hosts().check(parse_url("https://api.example.com:8443/x"))
    assert str(refused.value) == "api.example.com:8443 is not in allowedHosts, so no tool may call it"
    assert refused.value.hints == ("to allow it: onetool hosts allow api.example.com:8443",)


@each(
    "host",
    [
        "localhost:9753",
        "127.0.0.1:9753",
        "10.1.2.3",
        "[::1]:9753",
        "192.168.1.1",
        "printer.local",
        "db",
        "a.internal:81",
    ],
)
def test_what_is_near_is_said_to_need_more_at_once(host: str) -> None:
    url = parse_url(f"http://{host}/")
    with pytest.raises(RequestRefusedError, match="not in allowedHosts") as refused:
        hosts().check(url)
    assert refused.value.hints == (f"to allow it: onetool hosts allow --private {host}",)
    assert hosts(HostRule(host, allow_private=True)).check(url)


@each(
    "entry",
    [
        "",
        ".",
        "*.",
        "**",
        "*.*",
        "*example.com",
        "api.*.com",
        "a..b",
        " api.example.com",
        "https://api.example.com",
        "api.example.com/x",
        "u@api.example.com",
        "api.example.com:",
        "api.example.com:0",
        "api.example.com:65536",
        "api.example.com:x",
        "*.10.0.0.1",
        "127.1",
        "[fe80::1%eth0]",
        "[::1",
    ],
)
def test_an_entry_that_is_none_allows_nothing_and_is_told(entry: str) -> None:
    rules = hosts(entry, "api.example.com")
    assert len(rules.mistakes) == 1
    assert repr(entry) in rules.mistakes[0]
    assert rules.check(parse_url("https://api.example.com/"))
    with pytest.raises(RequestRefusedError):
        rules.check(parse_url("https://other.example/"))


@each(
    "url",
    [
        "http://localhost/",
        "http://LOCALHOST./",
        "http://db/",
        "http://a.localhost/",
        "http://metadata.google.internal/",
        "http://printer.local/",
        "http://router.home.arpa/",
        "http://localhost.localdomain/",
    ],
)
def test_names_of_this_network_need_to_be_allowed_as_such(url: str) -> None:
    host = parse_url(url).host
    for entry in ("*", host):
        with pytest.raises(RequestRefusedError, match="name of this machine") as refused:
            hosts(entry).check(parse_url(url))
        assert f"onetool hosts allow --private {host}" in refused.value.hints[0]
    assert hosts(HostRule(host, allow_private=True)).check(parse_url(url))


def test_private_addresses_need_to_be_allowed() -> None:
    url = parse_url("http://svc.example.com:8080/")
    closed, opened = HostRule("svc.example.com:8080"), HostRule("svc.example.com:8080", allow_private=True)
    rules = hosts(closed)
    rules.check_address(closed, "93.184.216.34", url)
    rules.check_address(opened, "10.0.0.5", url)
    rules.check_address(opened, "fe80::1%eth0", url)
    with pytest.raises(RequestRefusedError, match=r"resolves to 10\.0\.0\.5") as refused:
        rules.check_address(closed, "10.0.0.5", url)
    assert "onetool hosts allow --private svc.example.com:8080" in refused.value.hints[0]
    for nowhere in ("0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "nonsense"):
        with pytest.raises(RequestRefusedError, match="can't be called"):
            rules.check_address(opened, nowhere, url)


def test_an_address_in_the_url_is_checked_at_once() -> None:
    with pytest.raises(RequestRefusedError, match=r"127\.0\.0\.1 is an address that is not public"):
        hosts("127.0.0.1").check(parse_url("http://127.0.0.1/"))
    allowed = HostRule("127.0.0.1:9000", allow_private=True)
    assert hosts(allowed).check(parse_url("http://127.0.0.1:9000/")) == allowed
    with pytest.raises(RequestRefusedError, match="not in allowedHosts"):
        hosts(allowed).check(parse_url("http://127.0.0.1/"))


def test_the_nearest_entry_counts() -> None:
    everything, near = HostRule("*", allow_private=True), HostRule("*.example.com")
    with_port = HostRule("*.example.com:443", allow_private=True)
    exact = HostRule("api.example.com")
    url = parse_url("https://api.example.com/")
    assert hosts(everything, near).check(url) == near
    assert hosts(everything, near, with_port).check(url) == with_port
    assert hosts(everything, near, with_port, exact).check(url) == exact


def test_of_two_equal_entries_the_one_that_allows_more_counts() -> None:
    private = HostRule("a.example", allow_private=True)
    for order in ((HostRule("a.example"), private), (private, HostRule("a.example"))):
        assert hosts(*order).check(parse_url("https://a.example/")) == private
