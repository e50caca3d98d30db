"""Which JWTs are accepted, with real keys and a real server that publishes them; and what they allow."""

import asyncio
import hashlib
import hmac
import json
import time
from contextlib import asynccontextmanager, suppress

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from interfaces.http.issuer import AUDIENCE, Issuer, encoded, key, signed

from onetool.config.model import Grant, JwtConfig
from onetool.core.principal import Rate
from onetool.http.client import HttpClient
from onetool.interfaces.http.jwt_token import JwtError
from onetool.interfaces.http.jwt_verifier import JwtVerifier, json_fetcher

pytestmark = pytest.mark.attack("credentials")

URL = "https://tools.example.com"
CALL = Grant(tools=("web.*",), rate="60/min")


@pytest.fixture(scope="module")
def running():
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(running):
    running.keys, running.answer = [running.key.jwk()], None
    running.may_answer.set()
    running.asked.clear()
    return running


class Clocks:
    """Both go on together; tests move them."""

    def __init__(self):
        self.moved = 0.0

    def wall(self):
        return time.time() + self.moved

    def steady(self):
        return time.monotonic() + self.moved


@asynccontextmanager
async def verifying(issuer, clocks=None, url=URL, **changes):
    clocks, client = clocks or Clocks(), HttpClient()
    about = {"issuer": issuer.url, "jwks": issuer.jwks, "audience": AUDIENCE, "scopes": {"tools:call": CALL}}
    config = JwtConfig(**{**about, **changes})
    try:
        yield JwtVerifier(config, url, json_fetcher(client, config), clocks.wall, clocks.steady)
    finally:
        client.close()


def verify(issuer, token, **changes):
    async def once():
        async with verifying(issuer, **changes) as verifier:
            return await verifier.verify(token)

    return asyncio.run(once())


def refused(issuer, token, **changes):
    """The error, which has nothing of the token in it."""
    with pytest.raises(JwtError) as caught:
        verify(issuer, token, **changes)
    said = str(caught.value)
    assert not any(part and part.decode("latin-1") in said for part in token.split(b".") if len(part) > 8)
    return caught.value


def test_says_who_it_is_and_what_it_may(issuer):
    found = verify(issuer, issuer.token(exp=(exp := time.time() + 600)))
    assert found.name == found.owner == f"{issuer.url}|ann"
    assert (found.role, found.tools, found.rate) == ("call", ("web.*",), Rate(60, 60))
    assert found.expires == exp + 30  # until then it is let in


@pytest.mark.parametrize("kind", ["RSA", "EC", "OKP"])
def test_takes_the_usual_algorithms(issuer, kind):
    issuer.keys = [key(kind).jwk()]
    assert verify(issuer, issuer.token(key(kind))).owner.endswith("|ann")


def test_takes_further_algorithms_only_where_the_config_names_them(issuer):
    token = issuer.token(header={"alg": "PS256"})
    assert "algorithm" in str(refused(issuer, token))
    assert verify(issuer, token, algorithms=("PS256",)).role == "call"


# Algorithm confusion, and other tricks with the header


def _hmac_with(secret):
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


@pytest.mark.parametrize("encoding", ["pem", "der", "jwk", "n"])
def test_a_public_key_is_no_secret_of_hmac(issuer, encoding):
    public = issuer.key.private.public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(issuer.key.jwk()).encode(),
        "n": issuer.key.jwk()["n"].encode(),
    }[encoding]
    header = {"alg": "HS256", "kid": "one", "typ": "at+jwt"}
    assert "algorithm" in str(refused(issuer, signed(header, issuer.claims(), _hmac_with(secret))))
    # Nor with the name of an algorithm that is taken.
    token = signed({**header, "alg": "RS256"}, issuer.claims(), _hmac_with(secret))
    assert "signature" in str(refused(issuer, token))


def test_a_published_secret_is_no_key(issuer):
    issuer.keys = [{"kty": "oct", "k": encoded(b"x" * 32).decode(), "kid": "one", "alg": "HS256"}]
    token = signed({"alg": "HS256", "kid": "one"}, issuer.claims(), _hmac_with(b"x" * 32))
    assert "algorithm" in str(refused(issuer, token))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 5, ["RS256"], {"a": 1}, "rs256", "RS256 "])
def test_an_algorithm_that_is_none(issuer, algorithm):
    header = {"alg": algorithm, "kid": "one", "typ": "at+jwt"}
    for sign in (lambda _: b"", issuer.key.sign):
        assert "algorithm" in str(refused(issuer, signed(header, issuer.claims(), sign)))


@pytest.mark.parametrize(("header", "kind"), [("ES256", "RSA"), ("RS256", "EC"), ("EdDSA", "EC"), ("ES256", "P-384")])
def test_the_algorithm_has_to_fit_the_key(issuer, header, kind):
    issuer.keys = [key(kind).jwk()]
    token = signed({"alg": header, "kid": "one"}, issuer.claims(), key(kind).sign)
    assert "key" in str(refused(issuer, token))


@pytest.mark.parametrize(
    "about",
    [
        {"alg": "RS512"},
        {"alg": "RSA-OAEP"},
        {"use": "enc"},
        {"use": 5},
        {"key_ops": ["encrypt"]},
        {"key_ops": "verify"},
        {"key_ops": 7},
        {"d": "AQAB"},
        {"kty": "EC"},
        {"kty": ["RSA"]},
        {"n": "AQAB"},
        {"n": "!"},
        {"n": 5},
        {"e": None},
        {"kid": 1},
    ],
)
def test_the_key_says_what_it_is_for(issuer, about):
    issuer.keys = [issuer.key.jwk(**about), "nonsense", None]
    assert "key" in str(refused(issuer, issuer.token()))


def test_a_short_key_is_none(issuer):
    issuer.keys = [key("weak").jwk()]
    assert "key" in str(refused(issuer, signed({"alg": "RS256", "kid": "one"}, issuer.claims(), key("weak").sign)))


def test_keys_in_the_header_are_ignored(issuer):
    mine = key("RSA", "mine")
    for header in (
        {"jwk": mine.jwk()},
        {"jku": f"{issuer.url}/mine.json"},
        {"x5u": f"{issuer.url}/mine.pem"},
        {"x5c": ["MIIB"]},
    ):
        token = signed({"alg": "RS256", "kid": "one", **header}, issuer.claims(), mine.sign)
        assert "signature" in str(refused(issuer, token))
        assert verify(issuer, issuer.token(header=header)).role == "call"
    assert set(issuer.asked) == {"/jwks.json"}


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": None, "b64": False},
        {"b64": True},
        {"enc": "A256GCM"},
        {"zip": "DEF"},
        {"cty": "JWT"},
    ],
)
def test_headers_that_change_the_meaning_are_refused(issuer, header):
    assert "its header has" in str(refused(issuer, issuer.token(header=header)))
    assert issuer.asked == []


@pytest.mark.parametrize("kind", ["JWE", "logout+jwt", "dpop+jwt", "secevent+jwt", "JOSE", "", 5, ["JWT"], "a" * 999])
def test_other_types_are_refused(issuer, kind):
    assert "typ" in str(refused(issuer, issuer.token(header={"typ": kind})))


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt", None])
def test_types_of_access_tokens(issuer, kind):
    assert verify(issuer, issuer.token(header={"typ": kind})).role == "call"


@pytest.mark.parametrize(
    "claim", [{"nonce": "n"}, {"at_hash": "x"}, {"c_hash": "x"}, {"typ": "ID"}, {"typ": "Refresh"}]
)
def test_an_id_token_is_no_access_token(issuer, claim):
    assert "not an access token" in str(refused(issuer, issuer.token(header={"typ": "JWT"}, **claim)))


def test_a_token_bound_to_a_key_is_refused(issuer):
    assert "cnf" in str(refused(issuer, issuer.token(cnf={"jkt": "x"})))


@pytest.mark.parametrize(
    "kid",
    ["../../../../dev/null", "' OR 1=1 --", "http://127.0.0.1:1/", "%00", "One", "one ", "ｏｎｅ", "on\u0435"],
)
def test_a_name_of_a_key_is_only_compared(issuer, kid):
    assert "key" in str(refused(issuer, issuer.token(header={"kid": kid})))
    assert set(issuer.asked) == {"/jwks.json"}


@pytest.mark.parametrize("kid", ["x" * 257, "", "one\n", "o\u202ene", "\ud800", 1, ["one"], {"a": 1}, True])
def test_a_name_of_a_key_that_is_none(issuer, kid):
    assert "kid" in str(refused(issuer, issuer.token(header={"kid": kid})))
    assert issuer.asked == []


def test_two_keys_with_one_name(issuer):
    other = key("RSA", "other")
    issuer.keys = [other.jwk(kid="one"), key("EC").jwk(), issuer.key.jwk()]
    assert verify(issuer, issuer.token()).role == "call"
    assert verify(issuer, issuer.token(key("EC"))).role == "call"
    stranger = signed({"alg": "RS256", "kid": "one"}, issuer.claims(), key("RSA", "stranger").sign)
    assert "signature" in str(refused(issuer, stranger))


def test_without_a_name_every_key_that_fits_is_tried(issuer):
    issuer.keys = [key("EC").jwk(), key("RSA", "other").jwk(), issuer.key.jwk()]
    assert verify(issuer, issuer.token(header={"kid": None})).role == "call"


# The form


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-2],
        lambda token: token + b"=",
        lambda token: token + b"A",
        lambda token: token.replace(b".", b"..", 1),
        lambda token: token + b".",
        lambda token: b"." + token,
        lambda token: token.rpartition(b".")[0] + b".",
        lambda token: token.replace(b".", b". ", 1),
        lambda token: token[:5] + b"+" + token[6:],
        lambda token: token + b"." + token,
        lambda token: token + "ä".encode(),
        lambda token: b"..",
        lambda token: b"....",
        lambda token: b"",
        lambda token: b"x" * 16_385,
        lambda token: b"W10.W10.W10",  # lists
        lambda token: encoded(b"[" * 9_000) + b".e30.AA",
        lambda token: encoded(b'{"alg":' + b"9" * 9_000 + b"}") + b".e30.AA",
        lambda token: encoded(b'{"alg":"RS256","kid":"\xff"}') + b".e30.AA",
        lambda token: encoded(b'\xef\xbb\xbf{"alg":"RS256"}') + b".e30.AA",
        lambda token: encoded('{"alg":"RS256"}'.encode("utf-16")) + b".e30.AA",
    ],
)
def test_what_is_no_jwt(issuer, change):
    assert refused(issuer, change(issuer.token())).code == "invalid_token"


def test_the_last_bits_can_not_be_changed(issuer):
    """Some decoders ignore the last bits of the last character."""
    token = issuer.token()
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    at = letters.index(token[-1:])
    assert at % 16 == 0  # of 256 bytes, so four bits are unused
    assert "Base64url" in str(refused(issuer, token[:-1] + letters[at + 1 : at + 2]))


def test_a_changed_payload(issuer):
    head, _, signature = issuer.token().split(b".")
    token = b".".join((head, encoded(issuer.claims(sub="root")), signature))
    assert "signature" in str(refused(issuer, token))


def test_of_a_key_that_stands_there_twice_the_last_one_counts(issuer):
    """For the allow-list, the claims and the signature alike: one reader reads what was signed."""
    whole = json.dumps(issuer.claims()).encode()
    token = issuer.token(payload=b'{"sub":"root","deep":{"a":1,"a":2},' + whole[1:])
    assert verify(issuer, token).owner.endswith("|ann")
    assert "audience" in str(refused(issuer, issuer.token(payload=whole[:-1] + b',"aud":"other"}')))
    forged = key("RSA", "stranger").sign
    for last, words in ((b"RS256", "signature"), (b"none", "algorithm"), (b"HS256", "algorithm")):
        header = b'{"alg":"none","alg":"RS256","alg":"' + last + b'","kid":"one"}'
        for sign in (forged, lambda _: b""):
            assert words in str(refused(issuer, signed(header, issuer.claims(), sign)))


@pytest.mark.parametrize("padding", [b"=", b"==", b"==="])
def test_padding_gains_nothing(issuer, padding):
    """PyJWT takes a signature with its padding; its claims and signature are those of the JWT without."""
    head, _, signature = issuer.token().split(b".")
    forged = b".".join((head, encoded(issuer.claims(sub="root")), signature + padding))
    assert refused(issuer, forged).code == "invalid_token"


@pytest.mark.parametrize(
    "name", [pytest.param(b"typ", marks=pytest.mark.long), pytest.param(b"aud", marks=pytest.mark.long), b"x"]
)
def test_claims_of_any_depth(issuer, name):
    """Also of one that can be read, but not from a function further down."""
    whole = json.dumps(issuer.claims()).encode()[:-1]

    async def many():
        async with verifying(issuer) as verifier:
            for depth in range(500, 1000):
                inside = b',"' + name + b'":' + b"[" * depth + b"]" * depth + b"}"
                token = issuer.token(key("EC"), header={"typ": "JWT"}, payload=whole + inside)
                with suppress(JwtError):
                    assert (await verifier.verify(token)).owner.endswith("|ann")

    issuer.keys.append(key("EC").jwk())
    asyncio.run(many())


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 4_000])
def test_numbers_that_are_none(issuer, number):
    whole = json.dumps(issuer.claims(exp=None)).encode()
    assert refused(issuer, issuer.token(payload=whole[:-1] + b',"exp":' + number + b"}")).code == "invalid_token"


# Claims


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": None}, "exp is missing"),
        ({"exp": 1_700_000_000}, "expired at 2023-11-14T22:13:20Z"),
        ({"exp": "9999999999"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": [1]}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1e18}, "exp is not a time"),
        ({"exp": 10**400}, "exp is not a time"),
        ({"nbf": 4_000_000_000}, "not valid before 2096-10-02"),
        ({"nbf": "now"}, "nbf is not a time"),
        ({"iat": 4_000_000_000}, "issued in the future"),
        ({"iat": {}}, "iat is not a time"),
        ({"iss": None}, "iss is missing"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": ["x"]}, "issuer"),
        ({"aud": None}, "aud"),
        ({"aud": ""}, "aud is missing"),
        ({"aud": []}, "aud is missing"),
        ({"aud": "OneTool"}, "audience"),
        ({"aud": "onetool2"}, "audience"),
        ({"aud": "onetool "}, "audience"),
        ({"aud": ["other"]}, "audience"),
        ({"aud": ["onetool", 5]}, "aud"),
        ({"aud": {"onetool": 1}}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 5}, "sub"),
        ({"sub": "x" * 257}, "sub"),
        ({"sub": "ann\n"}, "sub"),
        ({"sub": "an\u200bn"}, "sub"),
        ({"sub": "\u202enna"}, "sub"),
        ({"sub": "\ud800"}, "sub"),
        ({"sub": "ann\x00"}, "sub"),
    ],
)
def test_claims_that_are_refused(issuer, claims, words):
    error = refused(issuer, issuer.token(**claims))
    assert error.code == "invalid_token"
    assert words in str(error)


def test_the_issuer_is_compared_exactly(issuer):
    for other in (f"{issuer.url}/", issuer.url.upper(), issuer.url.replace("127.0.0.1", "localhost")):
        assert "issuer" in str(refused(issuer, issuer.token(iss=other)))


def test_times_have_leeway(issuer):
    now = time.time()
    assert verify(issuer, issuer.token(exp=now - 20, nbf=now + 20, iat=now + 20)).role == "call"
    for claims in ({"exp": now - 40}, {"nbf": now + 40}, {"iat": now + 40}):
        refused(issuer, issuer.token(**claims))
    assert "expired" in str(refused(issuer, issuer.token(exp=now - 20), leeway_s=0.0))


@pytest.mark.parametrize(
    "audience", [AUDIENCE, [AUDIENCE], ["x", AUDIENCE], URL, f"{URL}/", f"{URL}/mcp", [f"{URL}/mcp/", "https://x"]]
)
def test_audiences(issuer, audience):
    assert verify(issuer, issuer.token(aud=audience)).role == "call"


@pytest.mark.parametrize(
    "audience", [f"{URL}.evil.example", f"{URL}/mcp2", f"{URL}//", f"{URL}/..", "tools.example.com"]
)
def test_audiences_that_are_others(issuer, audience):
    assert "audience" in str(refused(issuer, issuer.token(aud=audience)))


def test_the_address_is_an_audience_as_libraries_write_it(issuer):
    for written in ("https://Tools.Example.com:443", "https://Tools.Example.com:443/"):
        assert verify(issuer, issuer.token(aud=f"{URL}/"), url=written, audience=None).role == "call"
    assert "not one of nothing" in str(refused(issuer, issuer.token(), url=None, audience=None))


# Grants


GRANTS = {
    "scopes": {"a": Grant(tools=("web.*",), rate="60/min"), "b": Grant(tools=("time.now",), rate="2/s", role="edit")},
    "claims": {
        "groups": {"admins": Grant(role="admin"), "few": Grant(tools=("web.*", "fs.*"), rate="1/min")},
        "realm_access.roles": {"r": Grant(tools=("shell.pwd",))},
    },
}


@pytest.mark.parametrize(
    ("claims", "role", "tools", "rate"),
    [
        ({"scope": "a"}, "call", ("web.*",), Rate(60, 60)),
        ({"scope": "a b c"}, "edit", ("web.*", "time.now"), Rate(2, 1)),
        ({"scp": ["b"]}, "edit", ("time.now",), Rate(2, 1)),
        ({"scp": "b a"}, "edit", ("web.*", "time.now"), Rate(2, 1)),
        ({"scope": "a", "scp": ["b"]}, "edit", ("web.*", "time.now"), Rate(2, 1)),
        ({"groups": "few"}, "call", ("web.*", "fs.*"), Rate(1, 60)),
        ({"groups": ["few", 5], "scope": "a"}, "call", ("web.*", "fs.*"), Rate(60, 60)),
        ({"groups": ["admins"], "scope": "a"}, "admin", None, None),
        ({"realm_access": {"roles": ["r"]}}, "call", ("shell.pwd",), None),
    ],
)
def test_scopes_and_claims_add_up(issuer, claims, role, tools, rate):
    found = verify(issuer, issuer.token(**{"scope": None, **claims}), **GRANTS)
    assert (found.role, found.rate) == (role, rate)
    assert found.tools is tools is None or set(found.tools) == set(tools)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"scope": ""},
        {"scope": "A"},
        {"scope": "a,b"},
        {"scope": "a\tb"},
        {"scope": "aa"},
        {"scope": "ａ"},
        {"scope": {"a": 1}},
        {"scope": 5},
        {"scp": [["a"]]},
        {"scp": [None, 1]},
        {"groups": "admins few"},
        {"groups": {"admins": True}},
        {"groups": [["admins"]]},
        {"realm_access": "r"},
        {"realm_access": {"roles": {"r": 1}}},
    ],
)
def test_nothing_matches(issuer, claims):
    error = refused(issuer, issuer.token(**{"scope": None, **claims}), **GRANTS)
    assert (error.code, error.status) == ("insufficient_scope", 403)
    assert str(error).endswith("for one of these scopes: a, b.")


def test_a_stranger_does_not_hear_of_scopes(issuer):
    """What is missing is told to those alone whose signature is right."""
    token = signed({"alg": "RS256", "kid": "one"}, issuer.claims(scope=None), key("RSA", "stranger").sign)
    assert "signature" in str(refused(issuer, token, **GRANTS))
