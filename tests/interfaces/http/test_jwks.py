"""The keys of an issuer: when they are fetched, how long they count, what happens while the issuer is away."""

import asyncio
import time

import pytest
from helpers import until_async
from interfaces.http.issuer import Issuer, key, signed
from interfaces.http.test_jwt_verifier import Clocks, verifying

from onetool.interfaces.http import jwt_verifier
from onetool.interfaces.http.jwt_token import JwtError
from onetool.interfaces.http.jwt_verifier import metadata_urls

MINUTE, HOUR = 60, 3600


@pytest.fixture
def issuer():
    with Issuer() as one:
        yield one


def with_kid(issuer, kid, **claims):
    return issuer.token(header={"kid": kid}, **claims)


async def why(verifier, token):
    with pytest.raises(JwtError) as caught:
        await verifier.verify(token)
    return caught.value


def test_keys_are_fetched_once(issuer):
    async def many():
        async with verifying(issuer) as verifier:
            assert issuer.asked == []  # not before somebody needs them
            tokens = [issuer.token(sub=f"user-{number}") for number in range(20)]
            found = await asyncio.gather(*map(verifier.verify, tokens))
            return [one.owner for one in found]

    assert asyncio.run(many()) == [f"{issuer.url}|user-{number}" for number in range(20)]
    assert issuer.asked == ["/jwks.json"]


@pytest.mark.attack("credentials")
@pytest.mark.long
def test_thousands_with_unknown_keys_cause_one_fetch_in_half_a_minute(issuer):
    async def flood():
        clocks = Clocks()
        async with verifying(issuer, clocks) as verifier:
            good = await verifier.verify(issuer.token())
            tokens = [signed({"alg": "RS256", "kid": f"k{n}"}, issuer.claims(), lambda _: b"x") for n in range(2_000)]
            for turn in range(2):
                issuer.asked.clear()
                clocks.moved += 31
                said = await asyncio.gather(*(why(verifier, token) for token in tokens))
                assert {one.status for one in said} == {401}
                assert issuer.asked == ["/jwks.json"], turn
            issuer.asked.clear()
            await asyncio.gather(*(why(verifier, token) for token in tokens))
            assert issuer.asked == []
            assert verifier.known(issuer.token()) is None
            return good

    assert asyncio.run(flood()).role == "call"


@pytest.mark.attack("credentials")
def test_a_new_key_is_found_and_an_old_one_forgotten(issuer):
    async def rotate():
        clocks, other = Clocks(), key("RSA", "other")
        async with verifying(issuer, clocks) as verifier:
            old, new = issuer.token(), issuer.token(other)
            await verifier.verify(old)
            issuer.keys.append(other.jwk())
            assert "key" in str(await why(verifier, new))  # too soon after the last look
            clocks.moved = 31
            await verifier.verify(new)
            assert verifier.known(old)
            assert verifier.known(new)
            issuer.keys.remove(issuer.key.jwk())
            clocks.moved += 6 * MINUTE
            assert verifier.known(old)  # this look finds out that it is time
            await until(lambda: verifier.known(old) is None)
            assert verifier.known(new)
            assert "key" in str(await why(verifier, old))

    asyncio.run(rotate())


@pytest.mark.attack("credentials")
def test_a_key_under_a_name_that_another_one_had(issuer):
    async def rotate():
        clocks = Clocks()
        async with verifying(issuer, clocks) as verifier:
            old = issuer.token()
            await verifier.verify(old)
            issuer.keys = [key("RSA", "other").jwk(kid="one")]
            clocks.moved = 6 * MINUTE
            verifier.known(old)
            await until(lambda: verifier.known(old) is None)
            assert "signature" in str(await why(verifier, old))

    asyncio.run(rotate())


def test_a_newer_key_without_names(issuer):
    async def rotate():
        clocks, other = Clocks(), key("RSA", "other")
        async with verifying(issuer, clocks) as verifier:
            await verifier.verify(with_kid(issuer, None))
            issuer.keys = [other.jwk()]
            clocks.moved = 31
            await verifier.verify(issuer.token(other, header={"kid": None}))

    asyncio.run(rotate())


def test_old_keys_count_for_an_hour_while_the_issuer_is_away(issuer):
    async def away():
        clocks = Clocks()
        exp = time.time() + 3 * HOUR
        async with verifying(issuer, clocks) as verifier:
            before, later, last = (issuer.token(sub=name, exp=exp) for name in ("before", "later", "last"))
            await verifier.verify(before)
            issuer.answer = (500, {}, b"")
            clocks.moved = 50 * MINUTE
            assert verifier.known(before)
            await verifier.verify(later)  # with the old key
            unknown = await why(verifier, with_kid(issuer, "new", exp=exp))
            assert (unknown.status, unknown.code) == (503, "temporarily_unavailable")
            assert 0 < unknown.retry_after <= 30
            clocks.moved = 61 * MINUTE
            assert verifier.known(before) is None
            assert [(await why(verifier, token)).status for token in (before, last)] == [503, 503]
            issuer.answer = None
            clocks.moved += 31
            assert (await verifier.verify(before)).owner.endswith("|before")

    asyncio.run(away())


def test_nobody_waits_long(issuer, monkeypatch):
    monkeypatch.setattr(jwt_verifier, "WAIT_S", 0.2)
    issuer.may_answer.clear()

    async def slow():
        async with verifying(issuer) as verifier:
            said = await asyncio.gather(*(why(verifier, issuer.token(sub=f"{n}")) for n in range(20)))
            assert {(one.status, one.code) for one in said} == {(503, "temporarily_unavailable")}
            issuer.may_answer.set()
            await until(lambda: verifier._jwks.keys)  # it comes nevertheless
            assert (await verifier.verify(issuer.token())).role == "call"

    asyncio.run(slow())
    assert issuer.asked == ["/jwks.json"]


def test_one_who_leaves_takes_the_keys_from_nobody(issuer):
    issuer.may_answer.clear()

    async def leave():
        async with verifying(issuer) as verifier:
            first = asyncio.create_task(verifier.verify(issuer.token(sub="first")))
            second = asyncio.create_task(verifier.verify(issuer.token(sub="second")))
            await until(lambda: issuer.asked)  # both wait
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            issuer.may_answer.set()
            assert (await second).owner.endswith("|second")

    asyncio.run(leave())
    assert issuer.asked == ["/jwks.json"]


@pytest.mark.attack("credentials")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((302, {"Location": "/elsewhere.json"}, b""), "answered 302"),
        ((404, {}, b"{}"), "answered 404"),
        ((200, {}, b"<html>"), "is not valid JSON"),
        ((200, {}, b"[]"), "no list of keys"),
        ((200, {}, b'{"keys": {}}'), "no list of keys"),
        ((200, {}, b'{"keys": []' + b" " * 300_000 + b"}"), "262,144 bytes"),
        ((200, {}, b'{"a":' * 20_000), "is not valid JSON"),
    ],
)
def test_answers_that_are_no_keys(issuer, answer, words, caplog):
    issuer.answer = answer

    async def once():
        async with verifying(issuer) as verifier:
            return await why(verifier, issuer.token())

    error = asyncio.run(once())
    assert (error.status, error.retry_after) == (503, 30)
    assert issuer.asked == ["/jwks.json"]
    assert words in caplog.text


@pytest.mark.attack("credentials")
def test_an_issuer_that_takes_all_its_keys_back(issuer):
    async def empty():
        clocks = Clocks()
        async with verifying(issuer, clocks) as verifier:
            token = issuer.token()
            await verifier.verify(token)
            issuer.keys = []
            clocks.moved = 6 * MINUTE
            verifier.known(token)
            await until(lambda: verifier.known(token) is None)
            assert (await why(verifier, token)).status == 401

    asyncio.run(empty())


@pytest.mark.attack("credentials")
def test_a_verified_one_ends_with_its_time(issuer):
    async def expire():
        clocks = Clocks()
        async with verifying(issuer, clocks) as verifier:
            token = issuer.token(exp=time.time() + 60)
            principal = await verifier.verify(token)
            assert verifier.known(token) is principal
            clocks.moved = 85
            assert verifier.known(token)
            clocks.moved = 95
            assert verifier.known(token) is None

    asyncio.run(expire())


def test_one_that_expires_inside_the_leeway_ends_with_the_leeway(issuer):
    """Verified when it had already expired: it is remembered no longer than it would be verified."""

    async def expire():
        clocks = Clocks()
        async with verifying(issuer, clocks, leeway_s=300.0) as verifier:
            token = issuer.token(exp=time.time() - 150)
            principal = await verifier.verify(token)
            assert verifier.known(token) is principal
            clocks.moved = 151
            assert verifier.known(token) is None
            assert "expired at" in str(await why(verifier, issuer.token(exp=time.time() - 301)))

    asyncio.run(expire())


@pytest.mark.attack("credentials")
def test_one_that_expires_while_keys_are_fetched(issuer, monkeypatch):
    monkeypatch.setattr(jwt_verifier, "WAIT_S", 60)
    monkeypatch.setattr(jwt_verifier, "FETCH_S", 60)
    issuer.may_answer.clear()

    async def expire():
        async with verifying(issuer, leeway_s=0.0) as verifier:
            token = issuer.token(exp=(exp := int(time.time()) + 3))
            waiting = asyncio.create_task(why(verifier, token))
            await until_async(lambda: issuer.asked)
            await until_async(lambda: time.time() > exp)
            issuer.may_answer.set()
            assert "expired at" in str(await waiting)
            assert verifier.known(token) is None

    asyncio.run(expire())


@pytest.mark.attack("credentials")
def test_a_key_that_is_now_for_another_algorithm(issuer):
    async def change():
        clocks = Clocks()
        async with verifying(issuer, clocks, algorithms=("RS256", "PS256")) as verifier:
            token = issuer.token()
            await verifier.verify(token)
            issuer.keys = [issuer.key.jwk(alg="PS256")]
            clocks.moved = 6 * MINUTE
            verifier.known(token)
            await until(lambda: verifier.known(token) is None)
            assert "key" in str(await why(verifier, token))

    asyncio.run(change())


def test_a_bounded_number_is_remembered(issuer, monkeypatch):
    monkeypatch.setattr("onetool.interfaces.http.jwt_verifier.MAX_REMEMBERED", 3)

    async def many():
        async with verifying(issuer) as verifier:
            tokens = [issuer.token(sub=f"{n}") for n in range(4)]
            for token in tokens[:3]:
                await verifier.verify(token)
            verifier.known(tokens[0])  # used again: it stays
            await verifier.verify(tokens[3])
            assert [verifier.known(token) is not None for token in tokens] == [True, False, True, True]

    asyncio.run(many())


@pytest.mark.attack("credentials")
def test_a_refused_one_is_not_remembered(issuer):
    async def refuse():
        async with verifying(issuer) as verifier:
            for token in (issuer.token(scope="none"), issuer.token(aud="other")):
                await why(verifier, token)
                assert verifier.known(token) is None

    asyncio.run(refuse())


def test_is_for_tells_whether_the_config_has_changed(issuer):
    async def compare():
        async with verifying(issuer) as one, verifying(issuer, leeway_s=0.0) as other:
            config, url = one._config, one._url
            assert one.is_for(config, url)
            assert not one.is_for(config, None)
            assert not one.is_for(None, url)
            assert not other.is_for(config, url)

    asyncio.run(compare())


# Where the keys are


def test_metadata_says_where_the_keys_are(issuer):
    async def once(verifier):
        return (await verifier.verify(issuer.token())).role

    async def found():
        async with verifying(issuer, jwks=None) as verifier:
            assert await once(verifier) == "call"
        issuer.metadata = {"/.well-known/openid-configuration": {"issuer": issuer.url, "jwks_uri": issuer.jwks}}
        async with verifying(issuer, jwks=None) as verifier:
            assert await once(verifier) == "call"

    asyncio.run(found())
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    assert issuer.asked == [oauth, "/jwks.json", oauth, openid, "/jwks.json"]


@pytest.mark.attack("credentials")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"issuer": "https://evil.example"}, "metadata of another issuer"),
        ({"issuer": None}, "metadata of another issuer"),
        ({"jwks_uri": None}, "has no jwks_uri"),
        ({"jwks_uri": "http://keys.example/jwks.json"}, "must begin with https://"),
        ({"jwks_uri": "file:///etc/passwd"}, "http:// or https://"),
        ({"jwks_uri": "https://169.254.169.254/latest"}, "http.jwt.jwks"),
        ({"jwks_uri": "http://localhost:9/jwks.json"}, "http.jwt.jwks"),
    ],
)
def test_metadata_that_is_not_believed(issuer, said, words, caplog):
    path = "/.well-known/oauth-authorization-server"
    issuer.metadata[path] = {**issuer.metadata[path], **said}

    async def once():
        async with verifying(issuer, jwks=None) as verifier:
            return await why(verifier, issuer.token())

    assert asyncio.run(once()).status == 503
    assert words in caplog.text
    assert "/jwks.json" not in issuer.asked


def test_where_metadata_may_be():
    assert metadata_urls("https://id.example.com/tenant/") == [
        "https://id.example.com/.well-known/oauth-authorization-server/tenant",
        "https://id.example.com/tenant/.well-known/openid-configuration",
        "https://id.example.com/.well-known/openid-configuration/tenant",
    ]
    assert len(metadata_urls("https://id.example.com")) == 2


async def until(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")
