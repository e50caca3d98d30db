"""Who may talk to the server: Host, Origin, token. The rules by themselves, then every route of a real server."""

import json

import pytest
from helpers import each

from onetool.config.model import HttpConfig
from onetool.core.principal import Principal
from onetool.http.asgi import HEAD, HttpError, read_head
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules, read_authority
from onetool.services.secrets import Secret

TOKEN = "sesame-token-0123456789"
EVERYWHERE = BoundAddress("0.0.0.0", 8765, ("0.0.0.0",))
HERE = BoundAddress("127.0.0.1", 8765, ("127.0.0.1",))


def rules(place=HERE, **http):
    return AccessRules(HttpConfig(**http), place)


def passes(check, *args):
    try:
        check(*args)
    except HttpError as refused:
        return refused.status
    return True


# Host


@each(
    "host",
    ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "127.0.0.1", "localhost", "[::1]", "LocalHost:8765",
     "localhost.:8765", "[0:0:0:0:0:0:0:1]:8765"],
)  # fmt: skip
def test_our_own_names(host):
    assert passes(rules().check_host, host.encode()) is True


@each(
    "host",
    ["evil.example", "evil.example:8765", "localhost.evil.example", "localhost:8766", "127.0.0.1.nip.io:8765",
     "127.0.0.1:80", "127.0.0.2", "127.1", "2130706433", "0.0.0.0:8765", "0x7f.1", "localhost:8765@evil.example",
     "evil.example#localhost", "localhost/", "local host", "localhost:", "localhost:8765:8765", ":8765", "", ".",
     "[::1", "::1", "[::2]:8765", "[::ffff:127.0.0.1]:8765", "[::1%25lo]:8765", "[]", "localhost\t", "xn--localhost",
     "ｌocalhost", "localhost,localhost", "localhost:٨٧٦٥", "localhost..", "192.168.1.5:8765", "localhost:99999",
     "localhost:008765x"],
)  # fmt: skip
def test_names_that_are_not_ours(host):
    assert passes(rules().check_host, host.encode()) == 421


def test_a_host_that_is_missing_or_comes_twice_is_no_host():
    assert passes(rules().check_host, None) == 421
    twice = read_head([(b"host", b"localhost"), (b"host", b"localhost")])
    assert passes(rules().check_host, twice[b"host"]) == 421
    thrice = read_head([(b"host", b"localhost")] * 3)
    assert passes(rules().check_host, thrice[b"host"]) == 421


def test_the_host_that_was_configured_and_further_names():
    named = rules(
        BoundAddress("box.lan", 8765, ("10.0.0.5",)), hosts=("Tools.Example.com", "proxy.example:8443", "[2001:DB8::1]")
    )
    for host in ("box.lan:8765", "10.0.0.5:8765", "tools.example.com", "tools.example.com:1234", "TOOLS.example.com.",
                 "proxy.example:8443", "[2001:db8:0::1]", "localhost"):  # fmt: skip
        assert passes(named.check_host, host.encode()) is True, host
    for host in ("box.lan:80", "proxy.example", "proxy.example:8444", "x.tools.example.com", "example.com"):
        assert passes(named.check_host, host.encode()) == 421, host


def test_everywhere_is_no_name_but_the_address_that_was_connected_to_is():
    everywhere = rules(EVERYWHERE, token=Secret(TOKEN))
    assert passes(everywhere.check_host, b"192.168.1.5:8765", "192.168.1.5") is True
    assert passes(everywhere.check_host, b"192.168.1.5:8765", "192.168.1.6") == 421
    assert passes(everywhere.check_host, b"0.0.0.0:8765", "192.168.1.5") == 421
    assert passes(everywhere.check_host, b"evil.example:8765", "192.168.1.5") == 421
    assert passes(rules().check_host, b"192.168.1.5:8765", "192.168.1.5") == 421
    six = rules(BoundAddress("::", 8765, ("::",)), token=Secret(TOKEN))
    assert passes(six.check_host, b"[2001:db8::5]:8765", "2001:db8:0:0::5") is True
    assert passes(six.check_host, b"[fe80::5]:8765", "fe80::5%eth0") is True


@pytest.mark.parametrize(
    ("text", "name", "port"),
    [("a", "a", None), ("A.b.:80", "a.b", 80), ("[::1]:1", "::1", 1), ("127.0.0.1", "127.0.0.1", None)],
)
def test_reading_a_host(text, name, port):
    assert read_authority(text) == (name, port)


# Origin


@each(
    ("origin", "host"),
    [
        (None, "localhost:8765"),
        ("http://localhost:8765", "localhost:8765"),
        ("HTTP://LOCALHOST:8765", "LocalHost:8765"),
        ("http://localhost:8765", "localhost.:8765"),
        ("http://localhost", "localhost:80"),
        ("http://[::1]:8765", "[0:0:0:0:0:0:0:1]:8765"),
        ("https://tools.example.com", "tools.example.com"),
        ("https://tools.example.com", "tools.example.com:443"),
        ("http://tools.example.com:80", "tools.example.com"),
        ("http://tools.example.com:8765", "tools.example.com:8765"),
    ],
)
def test_pages_that_may(origin, host):
    assert passes(rules().check_origin, origin and origin.encode(), host.encode()) is True


@each(
    ("origin", "host"),
    [
        ("null", "localhost:8765"),
        ("", "localhost:8765"),
        ("http://evil.example", "localhost:8765"),
        ("http://evil.example:8765", "localhost:8765"),
        ("http://localhost.evil.example", "localhost:8765"),
        ("http://localhost@evil.example", "localhost:8765"),
        ("http://evil.example#localhost", "localhost:8765"),
        ("http://127.0.0.1.nip.io", "localhost:8765"),
        ("http://192.168.1.5", "localhost:8765"),
        ("file://", "localhost:8765"),
        ("file://localhost", "localhost:8765"),
        ("chrome-extension://localhost", "localhost:8765"),
        ("localhost:8765", "localhost:8765"),
        ("http://localhost:8765/", "localhost:8765"),
        ("http://localhost, http://evil.example", "localhost:8765"),
        ("http://localhost:3000", "localhost:8765"),
        ("http://localhost", "localhost:8765"),
        ("https://localhost", "localhost:8765"),
        ("http://127.0.0.1:8765", "localhost:8765"),
        ("http://localhost:8765", "127.0.0.1:8765"),
        ("http://[::1]:8765", "127.0.0.1:8765"),
        ("http://[::ffff:127.0.0.1]:8765", "127.0.0.1:8765"),
        ("http://127.1:8765", "127.0.0.1:8765"),
        ("http://localhost:99999", "localhost"),
        ("https://tools.example.com", "tools.example.com:80"),
        ("http://tools.example.com", "tools.example.com:443"),
        ("http://tools.example.com:3000", "tools.example.com"),
        ("http://other.example.com", "tools.example.com"),
    ],
)
def test_pages_that_may_not(origin, host):
    assert passes(rules().check_origin, origin.encode(), host.encode()) == 403


def test_pages_that_the_config_allows_may_also_read():
    allowing = rules(origins=("https://App.example", "vscode-webview://abc", "http://localhost:6274/"))
    assert allowing.check_origin(b"https://app.example", b"localhost") == b"https://app.example"
    assert allowing.check_origin(b"vscode-webview://abc", b"localhost") == b"vscode-webview://abc"
    assert allowing.check_origin(b"http://localhost:6274", b"localhost") == b"http://localhost:6274"
    assert allowing.check_origin(b"http://localhost", b"localhost") is None
    assert passes(allowing.check_origin, b"http://localhost:3000", b"localhost") == 403
    assert passes(allowing.check_origin, b"http://app.example", b"localhost") == 403
    assert passes(allowing.check_origin, b"https://app.example:8443", b"localhost") == 403


def test_an_origin_of_the_config_is_the_same_with_its_usual_port_and_without():
    allowing = rules(origins=("https://app.example:443", "http://one.example.:80", "http://[::0001]:6274"))
    for origin in (b"https://app.example", b"https://app.example:443", b"http://one.example", b"http://[::1]:6274"):
        assert allowing.check_origin(origin, b"localhost:8765") == origin
    assert passes(allowing.check_origin, b"http://app.example:443", b"localhost:8765") == 403


# Token


def test_without_a_token_nobody_is_asked():
    scope = {HEAD: {b"host": b"localhost:8765"}, "headers": [], "client": ("127.0.0.1", 1)}
    assert rules().identify(None, scope) == Principal(role="edit", owner="(local)")
    assert rules().identify(b"Bearer whatever", scope) == Principal(role="edit", owner="(local)")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_right_token(scheme):
    protected = rules(token=Secret(TOKEN))
    principal = protected.identify(f"{scheme} {TOKEN}".encode(), {})
    assert principal == protected.identify(f"{scheme}   {TOKEN} ".encode(), {})
    assert (principal.name, principal.role, len(principal.owner)) == ("http.token", "admin", 16)
    assert principal.owner not in TOKEN
    assert rules(token=Secret("another")).identify(b"Bearer another", {}).owner != principal.owner


@each(
    "header",
    [None, "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     f"Bearer{TOKEN}", f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}\0",
     f"x Bearer {TOKEN}", "Bearer None"],
)  # fmt: skip
def test_a_wrong_token(header):
    protected = rules(token=Secret(TOKEN))
    with pytest.raises(HttpError) as refused:
        protected.identify(None if header is None else header.encode(), {})
    assert refused.value.status == 401
    assert refused.value.headers == [(b"www-authenticate", b'Bearer realm="onetool"')]
    assert TOKEN not in str(refused.value)


def test_two_tokens_are_no_token():
    head = read_head([(b"authorization", b"Bearer " + TOKEN.encode())] * 2)
    assert passes(rules(token=Secret(TOKEN)).identify, head[b"authorization"], {}) == 401


# The same on the wire, for every route alike

ROUTES = ["/mcp", "/healthz", "/", "/nothing", "/tools"]


@each("path", ROUTES)
@each("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_bad_host_and_bad_origin_everywhere(server, path, method):
    for host in ("evil.example", f"evil.example:{server.port}", False):
        reply = server.ask(path, method, host=host)
        assert (reply.status, reply.code) == (421, "bad_host"), host
    twice = server.ask(path, method, [("Host", "localhost")])
    assert twice.status == 421
    for origin in ("http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:3000", "http://localhost"):
        reply = server.ask(path, method, [("Origin", origin)])
        assert (reply.status, reply.code) == (403, "bad_origin"), origin
        assert "access-control-allow-origin" not in reply.headers
    assert server.ask(path, method, [("Origin", "http://localhost"), ("Origin", "http://localhost")]).status == 403
    assert server.ask(path, method, [("Origin", f"http://127.0.0.1:{server.port}")]).status in (200, 404, 405, 415)


def test_old_http_without_a_host_is_refused(server):
    assert server.send(b"GET /healthz HTTP/1.0\r\n\r\n").status == 421


def test_a_target_with_a_host_of_its_own_is_refused(server):
    for line in ("GET http://evil.example/mcp", "GET http://evil.example", "CONNECT evil.example:80", "OPTIONS *"):
        reply = server.send(f"{line} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
        assert (reply.status, reply.headers["connection"]) == (400, "close"), line


def test_the_refusal_says_what_to_do(server):
    reply = server.ask(host="tools.example")
    assert "'tools.example' is not a name of this server" in reply.json["error"]["message"]
    assert "http.hosts" in reply.json["error"]["message"]
    page = server.ask(headers=[("Origin", "http://localhost:3000")]).json["error"]["message"]
    assert 'add "http://localhost:3000" to http.origins' in page


def test_with_a_token_every_protected_route_asks_for_it(guarded):
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        reply = guarded.ask("/mcp", method)
        assert (reply.status, reply.code) == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == 'Bearer realm="onetool"'
    assert guarded.ask("/mcp", headers=[("Authorization", "Bearer wrong")]).status == 401
    assert guarded.ask(f"/mcp?access_token={guarded.token}&token={guarded.token}").status == 401
    assert guarded.ask("/mcp", headers=[("Cookie", f"token={guarded.token}")]).status == 401
    right = guarded.ask("/mcp", headers=[("Authorization", f"Bearer {guarded.token}")])
    assert right.status == 200
    assert right.json["principal"] == "http.token"


def test_only_health_and_the_page_are_open(guarded):
    assert set(guarded.ask("/healthz").json) == {"status", "version"}
    assert guarded.ask("/").status == 200
    for path in ("/nothing", "/tools", "/mcp/", "/healthz/x", "/login/x", "/index.html"):
        assert guarded.ask(path).status == 401, path
    bearer = [("Authorization", f"Bearer {guarded.token}")]
    assert guarded.ask("/nothing", headers=bearer).status == 404


def test_the_right_token_does_not_help_a_wrong_host_or_page(guarded):
    bearer = ("Authorization", f"Bearer {guarded.token}")
    assert guarded.ask("/mcp", headers=[bearer], host="evil.example").status == 421
    assert guarded.ask("/mcp", headers=[bearer, ("Origin", "http://evil.example")]).status == 403
    assert guarded.ask("/mcp", headers=[bearer], host="tools.example").status == 200
    assert (
        guarded.ask("/mcp", headers=[bearer, ("Origin", "https://tools.example")], host="tools.example").status == 200
    )


def test_the_token_is_in_no_log(guarded):
    guarded.ask(f"/mcp?token={guarded.token}", headers=[("Authorization", f"Bearer {guarded.token}")])
    guarded.ask("/mcp?fail", headers=[("Authorization", f"Bearer {guarded.token}")])
    guarded.log(wait_for="GET /mcp failed")
    assert guarded.token not in guarded.log_file.read_text()


def test_a_page_that_the_config_names_may_read_the_answers(guarded):
    origin = ("Origin", guarded.origin)
    asks = [origin, ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "authorization, x")]
    before = guarded.ask("/mcp", "OPTIONS", asks)
    assert before.status == 204
    assert before.headers["access-control-allow-origin"] == guarded.origin
    assert before.headers["access-control-allow-headers"] == "authorization, x"
    assert "POST" in before.headers["access-control-allow-methods"]
    then = guarded.ask("/mcp", headers=[origin, ("Authorization", f"Bearer {guarded.token}")])
    assert (then.status, then.headers["access-control-allow-origin"]) == (200, guarded.origin)
    assert "mcp-session-id" in then.headers["access-control-expose-headers"]
    refused = guarded.ask("/mcp", headers=[origin])
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, guarded.origin)


def test_pages_of_this_server_may_ask_and_their_browser_needs_to_be_told_nothing(server):
    own = ("Origin", f"http://127.0.0.1:{server.port}")
    reply = server.ask("/mcp", headers=[own, ("Sec-Fetch-Site", "same-origin")])
    assert reply.status == 200
    assert "access-control-allow-origin" not in reply.headers
    assert "access-control-allow-origin" not in server.ask("/mcp", headers=[own]).headers


# In the config


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({"hosts": ["http://x.example"]}, "http.hosts: 'http://x.example' is not a host"),
        ({"hosts": ["*"]}, "http.hosts: '*' is not a host"),
        ({"hosts": ["x/y"]}, "not a host"),
        ({"origins": ["*"]}, "http.origins: '*' is not an origin"),
        ({"origins": ["x.example"]}, "not an origin"),
        ({"origins": ["https://x.example/path"]}, "not an origin"),
        ({"origins": ["null"]}, "not an origin"),
        ({"token": "two words"}, "http.token: must consist of ASCII"),
        ({"token": "schlüssel"}, "http.token: must consist of ASCII"),
        ({"max_body_mb": 0}, "http.max_body_mb: must be at least 1"),
    ],
)
def test_what_makes_no_sense_in_the_config_is_told(http, words, tmp_path):
    from onetool.config import load_config
    from onetool.core.errors import ConfigError

    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": http}))
    with pytest.raises(ConfigError) as wrong:
        load_config(tmp_path / "onetool.yaml")
    assert words in str(wrong.value)
    assert "two words" not in str(wrong.value)
    assert "schlüssel" not in str(wrong.value)


def test_balancers_ask_whether_it_is_ready_without_a_name(server):
    assert server.send(b"GET /readyz HTTP/1.0\r\n\r\n").status == 200
    answer = server.send(b"GET /readyz HTTP/1.1\r\nHost: 10.0.0.7:8765\r\nConnection: close\r\n\r\n")
    assert answer.status == 200
