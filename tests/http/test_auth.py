"""Every way to say who sends a request, by the bytes that the server saw; and that no secret is ever shown."""

import asyncio
import base64
import hashlib
import hmac
import threading
from urllib.parse import parse_qsl

import msgspec
import pytest
from helpers import forever, until_async
from http_harness import allowed, harness, run
from upstream import CLOSE, Reply, Upstream

from onetool.core.errors import BadArguments, ToolFailure
from onetool.http.client import FetchedToken, HttpClient, TokenCache
from onetool.http.placeholders import TemplateError

SECRETS = {"USER": "ann", "PASSWORD": "pa:ss wörd", "KEY": "k/e y&1", "SIGN": "sign-with-me"}


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def seen(upstream, auth, request=None, secrets=SECRETS, path="/x", schema=None, **args):
    harness(upstream, {"auth": auth, **(request or {})}, path=path, secrets=secrets, schema=schema)(**args)
    return upstream.seen[-1]


def test_bearer(upstream):
    assert seen(upstream, {"type": "bearer", "value": "${SIGN}"}).headers["authorization"] == "Bearer sign-with-me"
    request = {"headers": {"authorization": "Bearer other"}}
    names = [name for name, _ in seen(upstream, {"type": "bearer", "value": "t"}, request).header_list]
    assert [name for name in names if name.lower() == "authorization"] == ["Authorization"]


def test_an_argument_can_be_the_value(upstream):
    schema = {"properties": {"token": {"type": "string"}}}
    auth = {"type": "bearer", "value": "${token}"}
    assert seen(upstream, auth, schema=schema, token="abc").headers["authorization"] == "Bearer abc"
    with pytest.raises(BadArguments, match="`token` is required"):
        harness(upstream, {"auth": auth}, schema=schema)()


def test_basic(upstream):
    got = seen(upstream, {"type": "basic", "username": "${USER}", "password": "${PASSWORD}"})
    kind, _, value = got.headers["authorization"].partition(" ")
    assert (kind, base64.b64decode(value).decode()) == ("Basic", "ann:pa:ss wörd")


def test_api_keys(upstream):
    key = {"type": "apiKey", "value": "${KEY}"}
    assert seen(upstream, {**key, "name": "X-Key"}).headers["x-key"] == "k/e y&1"
    assert seen(upstream, {**key, "name": "a key", "in": "query"}).target == "/x?a%20key=k%2Fe%20y%261"
    assert seen(upstream, {**key, "name": "key", "in": "query"}, path="/x?a=b").target == "/x?a=b&key=k%2Fe%20y%261"
    cookie = {"type": "apiKey", "name": "sid", "value": "${SIGN}", "in": "cookie"}
    assert seen(upstream, cookie).headers["cookie"] == "sid=sign-with-me"
    assert seen(upstream, cookie, {"headers": {"Cookie": "a=b"}}).headers["cookie"] == "a=b; sid=sign-with-me"


@pytest.mark.parametrize(
    ("auth", "secret"),
    [
        ({"type": "bearer", "value": "${S}"}, "a\r\nX-Evil: 1"),
        ({"type": "bearer", "value": "${S}"}, "tok\n"),
        ({"type": "bearer", "value": "${S}"}, "токен"),
        ({"type": "apiKey", "name": "X-K", "value": "${S}"}, "a\0b"),
        ({"type": "apiKey", "name": "sid", "value": "${S}", "in": "cookie"}, "a; admin=1"),
        ({"type": "basic", "username": "${S}"}, "a:b"),
        ({"type": "hmac", "secret": "k", "prefix": "${S}"}, "a\nb"),
    ],
)
def test_values_that_would_be_more_than_a_value(upstream, auth, secret):
    with pytest.raises(ToolFailure) as caught:
        harness(upstream, {"auth": auth}, secrets={"S": secret})()
    assert secret not in str(caught.value)
    assert not upstream.seen


def test_a_secret_that_is_not_there(upstream):
    with pytest.raises(ToolFailure, match="the secret NOPE is not set"):
        harness(upstream, {"auth": {"type": "bearer", "value": "${NOPE}"}})()
    assert not upstream.seen


def test_which_secrets_a_tool_needs(upstream):
    auth = {"type": "oauth2", "tokenUrl": "https://x/${TENANT}", "clientId": "${ID}", "clientSecret": "${SECRET}"}
    tool = harness(upstream, {"auth": auth, "query": {"a": "${OTHER}"}})
    assert tool.tool.secrets == {"TENANT", "ID", "SECRET", "OTHER"}
    tool = harness(upstream, {"auth": {"type": "hmac", "secret": "${SIGN}", "prefix": "${P}"}})
    assert tool.tool.secrets == {"SIGN", "P"}


@pytest.mark.parametrize(
    ("auth", "pointer"),
    [
        ({"type": "bearer", "value": "${not closed"}, "/request/auth/value"),
        ({"type": "apiKey", "name": "a b", "value": "x"}, "/request/auth/name"),
        ({"type": "apiKey", "name": "Host", "value": "x"}, "/request/auth/name"),
        ({"type": "apiKey", "name": "a=b", "value": "x", "in": "cookie"}, "/request/auth/name"),
        ({"type": "hmac", "secret": "k", "payload": "{method}{nonsense}"}, "/request/auth/payload"),
        ({"type": "hmac", "secret": "k", "payload": "{timestamp}"}, "/request/auth/payload"),
        ({"type": "hmac", "secret": "k", "payload": "${x}"}, "/request/auth/payload"),
        ({"type": "hmac", "secret": "k", "header": "Content-Length"}, "/request/auth/header"),
        ({"type": "hmac", "secret": "k", "timestampHeader": "a b"}, "/request/auth/timestampHeader"),
        ({"type": "oauth2", "tokenUrl": "ftp://x/", "clientId": "a"}, "/request/auth/tokenUrl"),
        ({"type": "oauth2", "tokenUrl": "https://x/", "clientId": "${"}, "/request/auth/clientId"),
        (
            {"type": "oauth2", "tokenUrl": "https://x/", "clientId": "a", "grant": "refreshToken"},
            "/request/auth/refreshToken",
        ),
    ],
)  # fmt: skip
def test_what_can_not_work_is_told_at_definition(upstream, auth, pointer):
    with pytest.raises(TemplateError) as caught:
        harness(upstream, {"auth": auth})
    assert caught.value.pointer == pointer


# HMAC


def test_hmac_signs_exactly_what_is_sent(upstream):
    auth = {
        "type": "hmac", "secret": "${SIGN}", "algorithm": "sha512", "encoding": "base64", "prefix": "v1=",
        "payload": "{method}\n{host}\n{path}\n{timestamp}\n{bodySha256}\n{body}",
        "header": "X-Sig", "timestampHeader": "X-Time",
    }  # fmt: skip
    schema = {"properties": {"q": {"type": "string"}}}
    request = {"method": "POST", "query": {"q": "${q}"}, "body": {"q": "${q}"}, "idempotent": True, "retries": 1}
    upstream.say(Reply(503), Reply())
    seen(upstream, auth, request, path="/a/${q}", schema=schema, q="ü &/ {method}")
    for got in upstream.seen:
        parts = ["POST", upstream.netloc, got.target, got.headers["x-time"], hashlib.sha256(got.body).hexdigest()]
        payload = "\n".join(parts).encode() + b"\n" + got.body
        digest = hmac.digest(b"sign-with-me", payload, "sha512")
        assert got.headers["x-sig"] == f"v1={base64.b64encode(digest).decode()}"
        assert b"sign-with-me" not in got.raw
    assert len(upstream.seen) == 2


def test_hmac_as_it_is_by_default(upstream):
    got = seen(upstream, {"type": "hmac", "secret": "k"}, {"method": "POST", "body": {"a": 1}})
    assert got.headers["x-signature"] == hmac.new(b"k", got.body, "sha256").hexdigest()


# OAuth


class Authority:
    """A token endpoint: gives tokens, counts requests."""

    def __init__(self, **answer):
        self.asked = []
        self.answer = answer
        self.lock = threading.Lock()

    def __call__(self, seen):
        with self.lock:
            self.asked.append(seen)
            number = len(self.asked)
        return Reply(body=msgspec.json.encode({"access_token": f"access-token-{number}", **self.answer}))

    def forms(self):
        return [dict(parse_qsl(one.body.decode())) for one in self.asked]


def oauth(upstream, authority_url, client=None, **more):
    auth = {
        "type": "oauth2",
        "tokenUrl": f"{authority_url}/token",
        "clientId": "me",
        "clientSecret": "${SECRET}",
        **more,
    }
    hosts = allowed(upstream, authority_url.removeprefix("http://"))
    secrets = {"SECRET": "cl1ent secret", "REFRESH": "refresh-0"}
    return harness(upstream, {"auth": auth}, secrets=secrets, hosts=hosts, client=client)


def clock_of(tool):
    now = [0.0]
    tool.client.tokens = TokenCache(lambda: now[0])
    return now


def test_a_token_is_not_fetched_all_the_time(upstream):
    """Whatever the endpoint says of its tokens, and however often they are refused."""
    authority = Authority(expires_in=0.001)
    with Upstream(authority) as server:
        tool = oauth(upstream, server.url)
        now = clock_of(tool)
        for _ in range(10):
            tool()
        assert len(authority.asked) == 1
        upstream.say(Reply(401))
        for _ in range(10):
            with pytest.raises(ToolFailure, match="401 Unauthorized"):
                tool()
        assert len(authority.asked) == 2
        now[0] += 1.5
        upstream.say(Reply())
        tool()
        assert len(authority.asked) == 3


def test_the_same_token_again_is_no_other_one():
    tokens, fetched = TokenCache(lambda: 0.0), []

    async def fetch(newer):
        fetched.append(newer)
        return FetchedToken("same", 100.0)

    async def main():
        await tokens.get(("k",), fetch)
        await tokens.get(("k",), fetch, "same")
        for _ in range(5):
            with pytest.raises(ToolFailure, match="less than a second ago, and it was refused"):
                await tokens.get(("k",), fetch, "same")

    run(main())
    assert len(fetched) == 2


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_a_token_that_is_too_long(upstream, name):
    authority = Authority(**{"access_token": "abc-1", name: "aB1-" * 3_000})
    with Upstream(authority) as server:
        tool = oauth(upstream, server.url)
        with pytest.raises(ToolFailure, match=r"token of 127\.0\.0\.1:\d+ has more than 8,192 characters"):
            tool()
    assert not upstream.seen
    assert tool.environment.redact("aB1-" * 3_000) == "aB1-" * 3_000


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "value": "${a}"},
        {"type": "basic", "username": "${a}", "password": "p"},
        {"type": "apiKey", "name": "k", "value": "${a}", "in": "query"},
        {"type": "apiKey", "name": "k", "value": "${a}", "in": "cookie"},
        {"type": "hmac", "secret": "${a}"},
        {"type": "oauth2", "tokenUrl": "http://127.0.0.1:9/", "clientId": "${a}"},
    ],
)
def test_a_credential_that_is_too_long(upstream, auth):
    tool = harness(upstream, {"auth": auth}, schema={"properties": {"a": {"type": "string"}}})
    with pytest.raises(ToolFailure, match="of the tool's auth has more than 8,192 characters"):
        tool(a="a" * 9_000)
    assert not upstream.seen


def known_by(tool):
    told = []
    outside = tool.tool._context()
    tool.tool._context = lambda: outside._replace(mask_also=lambda text: (told.append(text), outside.mask_also(text)))
    return told


def test_credentials_made_of_arguments_are_not_masked_for_good(upstream):
    schema = {"properties": {"u": {"type": "string"}}}
    tool = harness(upstream, {"auth": {"type": "basic", "username": "${u}", "password": "p"}}, schema=schema)
    told = known_by(tool)
    for number in range(5):
        tool(u=f"user-number-{number}")
    assert not told
    with Upstream(Authority()) as server:
        auth = {"type": "oauth2", "tokenUrl": server.url, "clientId": "${u}", "clientSecret": "${u}"}
        tool = harness(upstream, {"auth": auth}, schema=schema, hosts=allowed(upstream, server))
        told = known_by(tool)
        tool(u="user-number-0")
    assert not told


@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd"])
def test_a_secret_beside_an_argument_is_masked_whatever_the_argument_is(upstream, user):
    upstream.say(lambda seen: Reply(400, body=f"you sent {seen.headers['authorization']} to me".encode()))
    schema = {"properties": {"u": {"type": "string"}}}
    auth = {"type": "basic", "username": "${u}", "password": "${KEY}"}
    tool = harness(upstream, {"auth": auth}, schema=schema, secrets={"KEY": "S3cret-number-one"})
    told = known_by(tool)
    with pytest.raises(ToolFailure) as caught:
        tool(u=user)
    first, second = base64.b64encode(f"{user}:S3cret-number-one".encode()).decode(), str(caught.value)
    assert not [at for at in range(len(first) - 4) if at > 6 and first[at : at + 4] in second]
    tool.tool._alone.auth._told = ""
    for one in ("other", "users", "come", "by"):
        with pytest.raises(ToolFailure):
            tool(u=one)
    assert len(set(told)) == 3


def test_what_a_token_endpoint_says_is_masked_before_it_is_cut(upstream):
    def echo(seen):
        login = seen.headers["authorization"].removeprefix("Basic ")
        return Reply(400, body=msgspec.json.encode({"error": "x" * 290 + login}))

    with Upstream(echo) as server, pytest.raises(ToolFailure, match=r"x\*\*\*$"):
        oauth(upstream, server.url)()


def test_client_credentials(upstream):
    authority = Authority(expires_in=3600, token_type="bearer")
    with Upstream(authority) as server:
        tool = oauth(upstream, server.url, scope="read write")

        async def main():
            await asyncio.gather(*[tool.call() for _ in range(20)])
            await tool.call()

        run(main())
        assert [one.headers["authorization"] for one in upstream.seen] == ["Bearer access-token-1"] * 21
        assert authority.forms() == [{"grant_type": "client_credentials", "scope": "read write"}]
        login = authority.asked[0].headers["authorization"]
        assert base64.b64decode(login.removeprefix("Basic ")) == b"me:cl1ent+secret"
        # What came, and what was made of secrets, is masked from now on.
        shown = tool.environment.redact("access-token-1 " + login)
        assert shown == "*** Basic ***"


def test_credentials_in_the_body(upstream):
    authority = Authority()
    with Upstream(authority) as server:
        oauth(upstream, server.url, clientAuth="body")()
        assert authority.forms()[0] == {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": "cl1ent secret",
        }
        assert "authorization" not in authority.asked[0].headers


def test_a_refused_token_is_fetched_anew_once(upstream):
    authority = Authority()
    upstream.say(Reply(401), Reply(body=b'"in"'), Reply(401))
    with Upstream(authority) as server:
        tool = oauth(upstream, server.url)
        now = clock_of(tool)
        assert tool() == "in"
        assert [one.headers["authorization"] for one in upstream.seen] == [
            "Bearer access-token-1", "Bearer access-token-2",
        ]  # fmt: skip
        now[0] += 2
        with pytest.raises(ToolFailure, match="401 Unauthorized") as caught:
            tool()
        assert "check the tool's auth" in caught.value.hints[0]
        assert len(authority.asked) == 3


def test_refresh_tokens_that_rotate(upstream):
    authority = Authority()
    upstream.say(Reply(401), Reply(401), Reply())
    with Upstream(authority) as server:
        tool = oauth(upstream, server.url, grant="refreshToken", refreshToken="${REFRESH}")
        now = clock_of(tool)
        authority.answer = {"refresh_token": "refresh-token-1"}
        with pytest.raises(ToolFailure):
            tool()
        authority.answer = {}
        now[0] += 2
        upstream.say(Reply(401), Reply())
        tool()
        assert [form["refresh_token"] for form in authority.forms()] == [
            "refresh-0", "refresh-token-1", "refresh-token-1",
        ]  # fmt: skip
        assert tool.environment.redact("refresh-token-1") == "***"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Reply(401, body=b'{"error": "invalid_client", "error_description": "no cl1ent secret, try again"}'),
            r"answered 401: invalid_client: no \*\*\*, try again",
        ),
        (Reply(400, body=b"<html>cl1ent secret</html>"), "answered 400: the response has no access_token"),
        (Reply(200, body=b"{}"), "the response has no access_token"),
        (Reply(200, body=b'{"access_token": 5}'), "the response has no access_token"),
        (Reply(200, body=b'{"access_token": "a\\r\\nb"}'), "not a bearer token"),
        (Reply(200, body=b'{"access_token": "abc", "token_type": "mac"}'), "not a bearer token"),
        (Reply(302, {"Location": "/elsewhere"}), "answered 302"),
    ],
)
def test_errors_of_the_token_endpoint(upstream, answer, words):
    with Upstream(answer) as server:
        tool = oauth(upstream, server.url)
        with pytest.raises(ToolFailure, match=f"no access token: .*{words}") as caught:
            tool()
    assert "cl1ent" not in str(caught.value)
    assert not upstream.seen


def test_a_token_endpoint_that_is_not_there_is_named_as_what_it_is(upstream):
    with Upstream() as server:
        tool = oauth(upstream, server.url)
    with pytest.raises(ToolFailure, match="no access token") as caught:
        tool()
    assert "tokenUrl" in caught.value.hints[0]


def test_a_token_endpoint_that_is_not_there_for_a_moment(upstream):
    authority = Authority()
    with Upstream([CLOSE], authority) as server:
        auth = {"type": "oauth2", "tokenUrl": f"{server.url}/token", "clientId": "me"}
        tool = harness(upstream, {"auth": auth, "retries": 1}, hosts=allowed(upstream, server))
        assert tool() == {}
        assert len(server.seen) == 2


def test_the_token_endpoint_has_to_be_allowed(upstream):
    with Upstream() as server:
        auth = {"type": "oauth2", "tokenUrl": f"{server.url}/token", "clientId": "me"}
        with pytest.raises(ToolFailure, match="allowedHosts") as caught:
            harness(upstream, {"auth": auth}, hosts=allowed(upstream))()
        assert caught.value.reason == "denied"
        assert not server.seen


def test_other_credentials_get_another_token(upstream):
    authority = Authority()
    with Upstream(authority) as server:
        client = HttpClient()
        first = oauth(upstream, server.url, client)
        second = oauth(upstream, server.url, client, clientSecret="wrong one")

        async def main():
            await first.call()
            await first.call()
            await second.call()

        run(main())
        assert len(authority.asked) == 2


def test_tokens_end():
    now = [0.0]
    tokens = TokenCache(lambda: now[0])
    fetched = []

    async def fetch(newer):
        fetched.append(newer)
        return FetchedToken(f"t{len(fetched)}", 100.0, "r1" if len(fetched) == 1 else None)

    async def get():
        return await tokens.get(("k",), fetch)

    assert [run(get()), run(get())] == ["t1", "t1"]
    now[0] = 91.0  # a tenth of its life before its end
    assert run(get()) == "t2"
    now[0] = 500.0
    assert run(get()) == "t3"
    assert fetched == [None, "r1", "r1"]


def test_one_fetch_for_many_loops_and_one_that_is_cancelled():
    tokens = TokenCache()
    started, fetches = threading.Event(), []

    async def fetch(newer):
        fetches.append(newer)
        started.set()
        if len(fetches) == 1:
            await forever()  # until it is cancelled
        return FetchedToken(f"t{len(fetches)}", 100.0)

    got = []
    threads = [
        threading.Thread(target=lambda: got.append(run(tokens.get(("k",), fetch))), daemon=True) for _ in range(5)
    ]

    async def cancelled():
        task = asyncio.ensure_future(tokens.get(("k",), fetch))
        await until_async(started.is_set)
        for thread in threads:
            thread.start()
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(cancelled())
    for thread in threads:
        thread.join(60)
    assert got == ["t2"] * 5
    assert len(fetches) == 2


def test_a_failed_fetch_fails_for_all_who_wait_and_is_tried_again_by_the_next():
    tokens = TokenCache()
    fetches = []

    async def fetch(newer):
        fetches.append(newer)
        await asyncio.sleep(0.05)
        if len(fetches) == 1:
            raise ToolFailure("no", reason="upstream_error")
        return FetchedToken("t", 100.0)

    async def main():
        first = await asyncio.gather(*[tokens.get(("k",), fetch) for _ in range(4)], return_exceptions=True)
        return [str(one) for one in first], await tokens.get(("k",), fetch)

    assert run(main()) == (["no"] * 4, "t")
    assert len(fetches) == 2


def test_what_is_made_of_a_secret_is_masked_where_a_server_shows_it(upstream):
    upstream.say(lambda seen: Reply(400, body=f"you sent {seen.headers['authorization']}".encode()))
    auth = {"type": "basic", "username": "${USER}", "password": "${PASSWORD}"}
    with pytest.raises(ToolFailure, match=r"you sent Basic \*\*\*"):
        harness(upstream, {"auth": auth}, secrets=SECRETS)()
