"""URLs, read once and strictly."""

import pytest
from helpers import each, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.http.errors import RequestRefusedError
from onetool.http.url import Url, is_address, normal_host, parse_url


@each(
    ("text", "expected"),
    [
        ("https://api.example.com/x", Url("https", "api.example.com", 443, "/x")),
        ("HTTP://API.Example.COM", Url("http", "api.example.com", 80, "/")),
        ("https://api.example.com.:8443?a=b", Url("https", "api.example.com", 8443, "/?a=b")),
        ("https://api.example.com:/x", Url("https", "api.example.com", 443, "/x")),
        ("http://[2606:2800:220:1::1946]:8080/", Url("http", "2606:2800:220:1::1946", 8080, "/")),
        ("http://[2606:2800:0220:1:0:0:0:1946]/", Url("http", "2606:2800:220:1::1946", 80, "/")),
        ("http://93.184.216.34/", Url("http", "93.184.216.34", 80, "/")),
        ("https://bücher.example/ü?q=ü", Url("https", "xn--bcher-kva.example", 443, "/%C3%BC?q=%C3%BC")),
        ("https://BÜCHER.example/", Url("https", "xn--bcher-kva.example", 443, "/")),
        ("https://straße.example/", Url("https", "xn--strae-oqa.example", 443, "/")),  # and not strasse.example
        ("https://my_service.example/", Url("https", "my_service.example", 443, "/")),
        ("https://a.example/x#y?z/@evil.test", Url("https", "a.example", 443, "/x")),
        ("https://a.example#@evil.test/", Url("https", "a.example", 443, "/")),
        ('https://a.example/{"a"}|%7e?x[]=<1>', Url("https", "a.example", 443, "/%7B%22a%22%7D%7C%7e?x[]=%3C1%3E")),
        ("https://a.example//b/../c", Url("https", "a.example", 443, "//b/../c")),
    ],
)
def test_read(text: str, expected: Url) -> None:
    assert parse_url(text) == expected


@each(
    "text",
    [
        "",
        "api.example.com/x",
        "//api.example.com/x",
        "https:api.example.com",
        "https:/api.example.com",
        "https:///api.example.com",
        "https:\\\\api.example.com",
        "ftp://api.example.com",
        "javascript://api.example.com/%0aalert(1)",
        " https://api.example.com",
        "https://api.example.com/x ",
        "\thttps://api.example.com",
        "ht\ttps://api.example.com",
        "https://api.exam\nple.com",
        "https://api.example.com/a\r\nb",
        "https://api.example.com/a b",
        "https://api.example.com\\@evil.test/",
        "https://api.example.com/a\\b",
        "https://api.example.com/\x85",
        "https://api.example.com/\ud800",
        "https://user@api.example.com/",
        "https://user:pass@api.example.com/",
        "https://@api.example.com/",
        "https://a@b@api.example.com/",
        "https://api.example.com%2eevil.test/",
        "https://api.example.com%00/",
        "https://api..example.com/",
        "https://.api.example.com/",
        "https://api.example.com../",
        "https://./",
        "https://-api.example.com/",
        "https://api-.example.com/",
        "https://*.example.com/",
        "https://api,evil.test/",
        "https://api;evil.test/",
        "https://" + "a" * 64 + ".example.com/",
        "https://" + ".".join(["a" * 60] * 5) + "/",
        "https://api.example.com:0/",
        "https://api.example.com:65536/",
        "https://api.example.com:000443/",
        "https://api.example.com:-1/",
        "https://api.example.com:+80/",
        "https://api.example.com:8o/",
        "https://api.example.com:٨٠/",
        "https://api.example.com:80:80/",
        "https://:80/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[v1.x]/",
        "http://[]/",
        "http://[127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.01/",
        "http://127.1/",
        "http://127.0.1/",
        "http://1.2.3.4.5/",
        "http://256.0.0.1/",
        "http://0x/",
        "http://example.0x10/",
        "http://example.1/",
        "http://１２７.0.0.1/",
        "https://ａpi.example.com/",
        "https://api。example。com/",
        "https://api．example．com/",
        "https://evil.test℀.example.com/",
        "https://exam\u00adple.com/",
        "https://exam\u200dple.com/",
        "https://exam\u2215ple.com/",
        "https://ﬁne.example/",
        "https://ⓐⓟⓘ.example.com/",
        "https://\u0301a.example/",
        "https://xn--ü.example/",
        "https://a.example/%zz",
        "https://a.example/%4",
        "https://a.example/100%",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        parse_url(text)
    assert refused.value.reason == "denied"


def test_its_own_words() -> None:
    url = parse_url("http://[::1]:8080/a?b")
    assert (url.authority, url.text, url.origin) == (
        "[::1]:8080",
        "http://[::1]:8080/a?b",
        ("http", "::1", 8080),
    )
    assert parse_url("https://a.example:443/").authority == "a.example"
    assert parse_url("http://a.example:443/").authority == "a.example:443"
    assert is_address("::1")
    assert is_address("192.0.2.1")
    assert not is_address("a.example")


@settings(deadline=None, max_examples=examples(300))
@given(st.text(max_size=30))
def test_whatever_is_read_is_read_the_same_again(rest: str) -> None:
    """Nothing but an URL or a refusal, and what comes of it has one meaning for everybody."""
    try:
        url = parse_url("https://api.example.com" + rest)
    except RequestRefusedError:
        return
    assert parse_url(url.text) == url
    assert url.target.isascii()
    assert url.target.isprintable()
    assert " " not in url.target


@settings(deadline=None, max_examples=examples(300))
@given(st.text(min_size=1, max_size=20))
def test_a_host_has_one_form(text: str) -> None:
    try:
        host = normal_host(text)
    except RequestRefusedError:
        return
    assert normal_host(f"[{host}]" if ":" in host else host) == host
    assert host == host.lower()
    assert host.isascii()
