"""A hostile authorization server: whatever it says, no token, code or secret goes elsewhere, and nothing is kept."""

import asyncio
import gzip
import json
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from document_stores import KeptLogin, in_home
from upstream import CLOSE, Reply, Upstream

from onetool.core.errors import OneToolError
from onetool.sources.mcp_servers.http_transport import ServerTransport
from onetool.sources.mcp_servers.oauth import http_auth, login
from onetool.sources.mcp_servers.upstream_calls import AuthError

pytestmark = pytest.mark.attack("logins at MCP servers")

ACCESS, REFRESH, CODE = "access-0123456789abcdef", "refresh-0123456789abcdef", "code-0123456789abcdef"
ALL_OF_IT = (ACCESS, REFRESH, CODE, "code_verifier", "client_secret")


def zipped(text):
    return json_reply(gzip.compress(text), **{"Content-Encoding": "gzip"})


def challenge(place):
    return Reply(401, {"WWW-Authenticate": f'Bearer resource_metadata="{place}"'})


def json_reply(value, status=200, **headers):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Reply(status, {"Content-Type": "application/json", **headers}, body)


class Enemy:
    """An MCP server and its authorization server on one port, with one answer changed; `trap` is somebody else."""

    def __init__(self, server, trap, step=None, change=None, back=None):
        self.own, self.trap, self.step, self.change, self.back = server.url, trap, step, change, back
        self.told = []
        self.pages = []

    def answers(self):
        own = self.own
        return {
            "/mcp": challenge(f"{own}/resource"),
            "/resource": {"resource": f"{own}/mcp", "authorization_servers": [own]},
            "/.well-known/oauth-authorization-server": {
                "issuer": own,
                "authorization_endpoint": f"{own}/authorize",
                "token_endpoint": f"{own}/token",
                "registration_endpoint": f"{own}/register",
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
            },
            "/register": {"client_id": "c", "redirect_uris": ["http://127.0.0.1/callback"]},
            "/token": {"access_token": ACCESS, "token_type": "Bearer", "refresh_token": REFRESH, "expires_in": 3600},
        }

    def answer(self, seen):
        path = urlsplit(seen.target).path
        if path == "/mcp" and f"Bearer {ACCESS}".encode() in seen.raw and self.step != "refused":
            return json_reply({"jsonrpc": "2.0", "id": 1, "result": {}})
        normal = self.answers().get(path)
        if normal is None:
            return Reply(404)
        if path == self.step:
            changed = self.change(self) if callable(self.change) else self.change
            if isinstance(changed, dict) and isinstance(normal, dict):
                normal = {key: value for key, value in {**normal, **changed}.items() if value is not None}
            else:
                normal = changed
        return json_reply(normal) if isinstance(normal, dict) else normal

    def browse(self, page):
        """Be a person who logs in at once, and is sent back."""
        self.pages.append(page)
        query = {key: values[0] for key, values in parse_qs(urlsplit(page).query).items()}
        said = {"code": CODE, "state": query.get("state", "")}
        if self.back is not None:
            said = {key: value for key, value in {**said, **self.back}.items() if value is not None}
        Thread(target=lambda: httpx2.get(query["redirect_uri"], params=said), daemon=True).start()


ENDLESS = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", *[b'"x": 1,' * 100_000] * 60, CLOSE]
BOMB = zipped(b" " * 40_000_000 + b"{}")
META, TOKEN = "/.well-known/oauth-authorization-server", "/token"


def at(step, **changes):
    """Attempts that change fields of one answer; `{trap}` and `{own}` in a value are the servers."""

    def change(enemy):
        def there(value):
            if isinstance(value, str):
                return (
                    value.replace("{trap}", enemy.trap.url)
                    .replace("{own}", enemy.own)
                    .replace("{port}", str(enemy.trap.port))
                )
            return [there(one) for one in value] if isinstance(value, list) else value

        return {key: there(value) for key, value in changes.items()}

    return step, change


def moved(step, status=307, where="{trap}/x"):
    def change(enemy):
        return Reply(status, {"Location": where.replace("{trap}", enemy.trap.url).replace("{own}", enemy.own)})

    return step, change


SAID: dict[str, tuple[str, Any]] = {
    # Metadata of the resource
    "resource of another server": at("/resource", resource="{trap}/mcp"),
    "resource with another path": at("/resource", resource="{own}/other"),
    "resource with a longer path": at("/resource", resource="{own}/mcp/more"),
    "resource by prefix": at("/resource", resource="{own}/mc"),
    "resource in another port": at("/resource", resource="http://127.0.0.1:1/mcp"),
    "resource of no kind": at("/resource", resource="javascript:alert(1)"),
    "no authorization server": at("/resource", authorization_servers=[]),
    "authorization server without encryption": at("/resource", authorization_servers=["http://login.example.com"]),
    "authorization server that is a file": at("/resource", authorization_servers=["file:///etc/passwd"]),
    "redirect of the resource": moved("/resource"),
    "loop of the resource": moved("/resource", where="{own}/resource"),
    "resource of 50 MB": ("/resource", ENDLESS),
    "resource that is deep": ("/resource", json_reply(b"[" * 100_000)),
    "resource that is HTML": ("/resource", Reply(200, {"Content-Type": "text/html"}, b"<script>")),
    "resource that is compressed": ("/resource", zipped(b"{}")),
    # Metadata of the authorization server
    "issuer of another": at(META, issuer="{trap}"),
    "issuer with a path": at(META, issuer="{own}/tenant"),
    "issuer in capitals": at(META, issuer="HTTP://127.0.0.1:1"),
    "no issuer": at(META, issuer=None),
    "issuer that is a list": at(META, issuer=["{own}"]),
    "token endpoint without encryption": at(META, token_endpoint="http://login.example.com/token"),
    "page without encryption": at(META, authorization_endpoint="http://login.example.com/authorize"),
    "page that is a script": at(META, authorization_endpoint="javascript:alert(1)"),
    "page that is a file": at(META, authorization_endpoint="file:///etc/passwd"),
    "page that is data": at(META, authorization_endpoint="data:text/html,x"),
    "page with a user": at(META, authorization_endpoint="https://accounts.google.com@evil.example/authorize"),
    "token endpoint with a user": at(META, token_endpoint="https://a:b@evil.example/token"),
    "registration that is a file": at(META, registration_endpoint="file:///etc/passwd"),
    "registration without encryption": at(META, registration_endpoint="http://login.example.com/register"),
    "only plain challenges": at(META, code_challenge_methods_supported=["plain"]),
    "page of a megabyte": at(META, authorization_endpoint="{own}/" + "x" * 1_000_000),
    "redirect of metadata": moved(META),
    "loop of metadata": moved(META, where="{own}" + META),
    "metadata of 50 MB": (META, ENDLESS),
    "metadata that are deep": (META, json_reply(b'{"a":' * 100_000)),
    "metadata that are compressed": (META, BOMB),
    "header without end": (META, [b"HTTP/1.1 200 OK\r\n", *[b"X: " + b"x" * 60_000 + b"\r\n"] * 20, CLOSE]),
    # Registration
    "client without id": at("/register", client_id=None),
    "id of a megabyte": at("/register", client_id="x" * 1_000_000),
    "client for another page": at("/register", token_endpoint_auth_method="private_key_jwt"),
    "method that nobody knows": at("/register", token_endpoint_auth_method="magic"),
    "redirect of the registration": moved("/register"),
    "registration of 50 MB": ("/register", ENDLESS),
    # Tokens
    "no token": at(TOKEN, access_token=None),
    "token of another kind": at(TOKEN, token_type="mac"),
    "token that is a list": at(TOKEN, access_token=["a"]),
    "token with a line": at(TOKEN, access_token=f"{ACCESS}\r\nX-Evil: 1"),
    "token that is not ASCII": at(TOKEN, access_token=f"{ACCESS}\u202e\u00e9"),
    "empty token": at(TOKEN, access_token=""),
    "time that is none": at(TOKEN, expires_in="soon"),
    "endless time": at(TOKEN, expires_in=10**400),
    "redirect of the token": moved(TOKEN),
    "token that is HTML": (TOKEN, Reply(200, {"Content-Type": "text/html"}, f"<b>{ACCESS}".encode())),
    "error with controls": (TOKEN, json_reply({"error": "x\x1b[2J\u202e" + "y" * 100_000}, 400)),
    "token of 50 MB": (TOKEN, ENDLESS),
    "token that is compressed": (TOKEN, BOMB),
    # The server itself
    "never content": ("refused", None),
    "metadata of another place": ("/mcp", lambda enemy: challenge(f"{enemy.trap.url}/resource")),
    "metadata at a file": ("/mcp", challenge("file:///etc/passwd")),
    "challenge of a megabyte": ("/mcp", Reply(401, {"WWW-Authenticate": "Bearer " + 'a="b", ' * 8_000})),
    "redirect of the server": ("/mcp", lambda enemy: Reply(307, {"Location": f"{enemy.trap.url}/mcp"})),
}  # fmt: skip

BACK = {
    "other issuer": {"iss": "https://accounts.example.com"},
    "issuer that is nearly the same": {"iss": "http://127.0.0.1"},
    "no code": {"code": None, "error": "access_denied"},
    "empty code": {"code": ""},
    "error with controls": {"code": None, "error": "\x1b[2J\u202e", "error_description": "x" * 10_000},
}


def logged_in(enemy, folder, seconds=20):
    """Try to log in. Return the error message, or None."""
    try:
        work = login("vault", f"{enemy.own}/mcp", "oauth", folder, enemy.told.append, enemy.browse, seconds=seconds)
        asyncio.run(work)
    except OneToolError as error:
        return str(error)
    return None


# What can't be used of its metadata counts as not said: the login is at the server's own origin, or at none.
FALLS_BACK = (
    *("authorization server that is a file", "redirect of the resource", "loop of the resource", "resource of no kind"),
    *("no authorization server", "no issuer", "issuer that is a list", "page that is a script", "page that is a file"),
    *("page that is data", "registration that is a file", "redirect of metadata", "loop of metadata"),
    *("resource that is deep", "resource that is HTML", "metadata that are deep", "metadata of another place"),
    *("challenge of a megabyte", "redirect of the server"),
)


def holds(enemy, trap, folder, why, falls_back=False):
    """Nothing has gone to the trap; nothing was kept, unless of a login at its own origin; the words are for people."""
    if falls_back and why is None:
        assert [page.partition("?")[0] for page in enemy.pages] == [f"{enemy.own}/authorize"]
    else:
        assert why is not None, "somebody was logged in"
        assert why.isprintable(), why
        assert len(why) < 1000
        assert not any(secret in why for secret in (ACCESS, REFRESH))
        assert enemy.step == "refused" or not KeptLogin(folder, "vault").exists()
    assert not any(one in seen.raw.decode("latin-1") for seen in trap.seen for one in ALL_OF_IT), trap.seen
    assert all(len(page) < 10_000 and page.isprintable() for page in enemy.pages)


@pytest.mark.parametrize("name", SAID)
def test_nothing_comes_of_what_it_says(tmp_path, name):
    folder = in_home(tmp_path, "logins")
    with Upstream() as server, Upstream(Reply(404)) as trap:
        enemy = Enemy(server, trap, *SAID[name])
        server.say(enemy.answer)
        why = logged_in(enemy, folder)
        holds(enemy, trap, folder, why, name in FALLS_BACK)
        assert "within 20 s" not in str(why), "it was left to the person to end it"
        assert all("plain" not in page for page in enemy.pages)


@pytest.mark.parametrize("name", BACK)
def test_nothing_comes_of_what_the_browser_brings(tmp_path, name):
    folder = in_home(tmp_path, "logins")
    with Upstream() as server, Upstream(Reply(404)) as trap:
        enemy = Enemy(server, trap, back=BACK[name])
        server.say(enemy.answer)
        why = logged_in(enemy, folder, seconds=5)
        holds(enemy, trap, folder, why)
        assert not any(urlsplit(seen.target).path == TOKEN for seen in server.seen)


def test_honest_use_still_works(tmp_path):
    """What all these attempts change one answer of."""
    folder = in_home(tmp_path, "logins")
    with Upstream() as server, Upstream(Reply(404)) as trap:
        enemy = Enemy(server, trap)
        server.say(enemy.answer)
        assert logged_in(enemy, folder) is None
        (page,) = enemy.pages
        assert "code_challenge_method=S256" in page
        assert ACCESS in KeptLogin(folder, "vault").read_text()
        assert trap.seen == []


@pytest.mark.parametrize("step", ["/resource", META, "/register", TOKEN])
def test_an_answer_that_never_ends_does_not_outlast_the_login(tmp_path, step):
    folder = in_home(tmp_path, "logins")
    with Upstream() as server, Upstream(Reply(404)) as trap:
        drip = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", *[b" ", 0.1] * 6000, CLOSE]
        enemy = Enemy(server, trap, step, drip)
        server.say(enemy.answer)
        why = logged_in(enemy, folder, seconds=1)
        holds(enemy, trap, folder, why)
        assert "within 1 s" in why


MIXED_UP = {
    "page of another": at(META, authorization_endpoint="{trap}/authorize"),
    "tokens for another": at(META, token_endpoint="{trap}/token"),
    "page of another that is encrypted": at(META, authorization_endpoint="https://accounts.example.com/authorize"),
}


@pytest.mark.parametrize("name", MIXED_UP)
def test_a_person_reads_where_a_login_on_another_page_goes_to(tmp_path, name):
    with Upstream() as server, Upstream(Reply(404)) as trap:
        enemy = Enemy(server, trap, *MIXED_UP[name])
        server.say(enemy.answer)
        logged_in(enemy, in_home(tmp_path, "logins"))
        tokens = trap.netloc if name == "tokens for another" else server.netloc
        assert f"The rights that you grant there apply to {tokens}." in "".join(enemy.told)


LATER: dict[str, tuple[str, Any]] = {
    "other authorization server": at("/resource", authorization_servers=["{trap}"]),
    "other resource": at("/resource", resource="{trap}/mcp", authorization_servers=["{trap}"]),
    "other token endpoint": at(META, token_endpoint="{trap}/token"),
    "other issuer": at(META, issuer="{trap}", token_endpoint="{trap}/token"),
    "other metadata": ("/mcp", lambda enemy: challenge(f"{enemy.trap.url}/resource")),
    "redirect": ("/mcp", lambda enemy: Reply(307, {"Location": f"{enemy.trap.url}/mcp"})),
    "redirect of the token": moved(TOKEN),
    "token with a line": at(TOKEN, access_token=f"{ACCESS}\r\nX-Evil: 1"),
    "endless time": at(TOKEN, expires_in=10**400),
}
PROGRAM = {"type": "client_credentials", "client_id": "robot", "client_secret": "client_secret-0123456789"}


@pytest.mark.parametrize("auth", ["oauth", PROGRAM], ids=["person", "program"])
@pytest.mark.parametrize("name", LATER)
def test_a_server_that_changes_later_gets_nothing_for_another(tmp_path, name, auth):
    """First it is honest. Then it refuses its own token, and what it says is changed."""
    folder = in_home(tmp_path, "logins")

    async def call(url):
        async with httpx2.AsyncClient(
            auth=http_auth("vault", url, auth, folder), transport=ServerTransport(url), timeout=10
        ) as client:
            return (await client.post(url, json={})).status_code

    with Upstream() as server, Upstream(Reply(404)) as trap:
        enemy = Enemy(server, trap)
        server.say(enemy.answer)
        if auth == "oauth":
            assert logged_in(enemy, folder) is None
        assert asyncio.run(call(f"{enemy.own}/mcp")) == 200
        kept = KeptLogin(folder, "vault").read_text()
        enemy.step, enemy.change = LATER[name]
        changed = enemy.change(enemy) if enemy.step == "/mcp" else enemy.answers()["/mcp"]
        server.say(lambda seen: changed if seen.target == "/mcp" else enemy.answer(seen))
        before = len(server.seen)
        with suppress(AuthError, httpx2.HTTPError):
            assert asyncio.run(call(f"{enemy.own}/mcp")) != 200
        assert len(server.seen) > before
        assert not any(one in seen.raw.decode("latin-1") for seen in trap.seen for one in (*ALL_OF_IT, "robot")), (
            trap.seen
        )
        assert "X-Evil" not in kept + KeptLogin(folder, "vault").read_text()
        assert REFRESH in kept or auth != "oauth"
