"""What HTTP tools may send where: not what the server uses, and a provider's key only where `ask` sends it."""

import json
from base64 import b64encode, urlsafe_b64encode
from contextlib import nullcontext
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from onetool.app import App
from onetool.app.secret_rules import SecretRules
from onetool.config import load_config
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, Principal, current_principal
from onetool.http.url import parse_url
from onetool.services.access_tokens import token_digest
from onetool.sources.bundles.errors import ForbiddenError

pytestmark = pytest.mark.attack("secrets")

KEY = "0123456789abcdef" * 4
DATABASE = "postgresql://ot:p%40ss-word-0123456789@db.example/ot?sslpassword=other-pass-0123456789"
OPENAI = "sk-openai-0123456789abcdef"


OWN = "ot_" + "aB3_-xY9" * 5 + "Zz0"
CHOSEN = "chosen.by-the_operator~0"


def rules(folder, secrets, config, env=None, tokens=()):
    folder.mkdir(exist_ok=True)
    (folder / "secrets.yaml").write_text(json.dumps(secrets))
    (folder / "secrets.yaml").chmod(0o600)
    (folder / "onetool.yaml").write_text(json.dumps({"secrets": "secrets.yaml", **config}))
    known = {token_digest(token): SimpleNamespace(principal=Principal(name="boss")) for token in tokens}
    return SecretRules(load_config(folder / "onetool.yaml", env=env or {}), SimpleNamespace(find=known.get))


CLUSTER = {"database": "${DATABASE_URL}", "cluster": {"address": "127.0.0.1:1", "key": "${CLUSTER_KEY}"}}


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("CLUSTER_KEY", KEY, "cluster.key"),
        ("COPY", KEY, "cluster.key"),
        ("COPY", f" {KEY}\t", "cluster.key"),
        ("COPY", KEY.encode().hex(), "cluster.key"),
        ("DATABASE_URL", DATABASE, "database"),
        ("COPY", DATABASE, "database"),
        ("PGPASSWORD", "p@ss-word-0123456789", "database"),
        ("PGPASSWORD", "p%40ss-word-0123456789", "database"),
        ("SSLPASSWORD", "other-pass-0123456789", "database"),
    ],
)
def test_what_replicas_share_is_known_by_name_and_by_value(tmp_path, name, value, what):
    secrets = {"CLUSTER_KEY": KEY, "DATABASE_URL": DATABASE, name: value}
    with pytest.raises(ToolFailure, match=f"{name} is {what} of this server"):
        rules(tmp_path, secrets, CLUSTER).get(name)


@pytest.mark.parametrize(
    "value",
    [
        f"{OWN}",
        f"Bearer {OWN}",
        f"key={OWN}",
        f"https://h.example/?t={OWN}&x=1",
        f"{OWN},",
        f"x{OWN}y",
        f"a-{OWN}_b",
        f"ot_{OWN}",
        quote(f'{{"t": "{OWN}"}}', safe=""),
        "".join(f"%{one:02x}" for one in OWN.encode()),
        OWN.encode().hex(),
        f"0x{OWN.encode().hex().upper()}",
        *(b64encode(f"{user}:{OWN}".encode()).decode() for user in ("u", "us", "use", "user")),
        "Basic " + b64encode(f"user:{OWN}".encode()).decode().rstrip("="),
        "key_" + urlsafe_b64encode(f"\xff\xfe?{OWN}".encode()).decode(),
        "x" + b64encode(OWN.encode()).decode(),
        quote(b64encode(f"\xff\xfb:{OWN}".encode()).decode(), safe=""),
        CHOSEN,
        f"key={CHOSEN}",
        f"https://h.example/?t={CHOSEN}&x=1",
        b64encode(f"user:{CHOSEN}".encode()).decode(),
    ],
)
def test_a_token_is_known_inside_another_secret(tmp_path, value):
    with pytest.raises(ToolFailure, match="COPY is the token boss of this server"):
        rules(tmp_path, {"COPY": value}, {}, tokens=[OWN, CHOSEN]).get("COPY")


@pytest.mark.parametrize("value", ["https://u:hunter2!@h.example/", b64encode(b"u:hunter2!").decode(), "a=hunter2!"])
def test_a_password_of_eight_characters_is_known_inside_another_secret(tmp_path, value):
    config = {"database": "postgresql://ot:hunter2!@db.example/ot"}
    with pytest.raises(ToolFailure, match="COPY is database"):
        rules(tmp_path, {"COPY": value}, config).get("COPY")


def test_it_is_known_by_name_where_it_is_one_of_several_parts(tmp_path):
    config = {"database": "postgresql://ot:${A}${B}@db.example/ot"}
    found = rules(tmp_path, {"A": "half", "B": "other"}, config)
    for name in ("A", "B"):
        with pytest.raises(ToolFailure, match="of this server"):
            found.get(name)


def test_it_is_known_by_name_where_it_is_not_set(tmp_path):
    found = rules(tmp_path, {}, {**CLUSTER, "database": DATABASE})
    with pytest.raises(ToolFailure, match=r"CLUSTER_KEY is cluster\.key"):
        found.get("CLUSTER_KEY")


def test_a_short_password_is_not_looked_for_in_other_secrets(tmp_path):
    config = {"database": "postgresql://ot:test@db.example/ot"}
    found = rules(tmp_path, {"SAME": "test", "OTHER": "sk-test-0123456789"}, config)
    assert found.get("OTHER") == "sk-test-0123456789"
    with pytest.raises(ToolFailure, match="SAME is database"):
        found.get("SAME")


def may_send(found, name, url):
    try:
        found.check(name, parse_url(url))
    except ToolFailure:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("OPENAI_API_KEY", "https://api.openai.com/v1/models", True),
        ("COPY", "https://api.openai.com/v1/models", True),
        ("OPENAI_API_KEY", "http://api.openai.com/v1/models", False),
        ("OPENAI_API_KEY", "https://api.openai.com:8443/", False),
        ("OPENAI_API_KEY", "https://api.openai.com.evil.example/", False),
        ("OPENAI_API_KEY", "https://api.anthropic.com/", False),
        ("OPENAI_API_KEY", "https://evil.example/", False),
        ("COPY", "https://evil.example/", False),
        ("HEADER", "https://evil.example/", False),
        ("ANTHROPIC_API_KEY", "https://api.anthropic.com/", True),
        ("ANTHROPIC_API_KEY", "https://api.openai.com/", False),
        ("OTHER", "https://evil.example/", True),
    ],
)
def test_a_providers_key_goes_to_the_provider(tmp_path, name, url, expected):
    secrets = {"OPENAI_API_KEY": OPENAI, "COPY": OPENAI, "HEADER": f"Bearer {OPENAI}", "OTHER": "other-0123456789"}
    found = rules(tmp_path, {**secrets, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}, {})
    assert may_send(found, name, url) is expected


def test_the_error_names_the_secret_and_the_key_once(tmp_path):
    found = rules(tmp_path, {"OPENAI_API_KEY": OPENAI, "COPY": OPENAI}, {})
    for name, text in (
        ("OPENAI_API_KEY", "the secret OPENAI_API_KEY is a model provider's key: "),
        ("COPY", "the secret COPY contains OPENAI_API_KEY, a model provider's key: "),
    ):
        with pytest.raises(ToolFailure, match=text):
            found.check(name, parse_url("https://evil.example/"))


def test_a_key_of_the_environment_is_known_by_its_value(tmp_path):
    found = rules(tmp_path, {"COPY": OPENAI}, {}, env={"OPENAI_API_KEY": OPENAI})
    assert not may_send(found, "COPY", "https://evil.example/")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://models.example/other", True),
        ("https://models.example:8443/", False),
        ("http://models.example/", False),
        ("https://api.openai.com/", True),
    ],
)
def test_a_providers_key_goes_to_the_address_that_ask_uses(tmp_path, url, expected):
    found = rules(tmp_path, {"OPENAI_API_KEY": OPENAI}, {"ask": {"base_url": "https://models.example/v1"}})
    assert may_send(found, "OPENAI_API_KEY", url) is expected


def test_the_address_of_another_provider_gets_no_key(tmp_path):
    config = {"ask": {"provider": "anthropic", "base_url": "https://models.example/"}}
    found = rules(tmp_path, {"OPENAI_API_KEY": OPENAI}, config)
    assert not may_send(found, "OPENAI_API_KEY", "https://models.example/")


def test_an_address_gets_no_key_that_is_not_kept_beside_the_config(tmp_path):
    """As `ask` has it: the config names the address, and a file elsewhere the key."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secrets.yaml").write_text(f"OPENAI_API_KEY: {OPENAI}\n")
    (elsewhere / "secrets.yaml").chmod(0o600)
    config = {"secrets": "../elsewhere/secrets.yaml", "ask": {"base_url": "https://models.example/v1"}}
    found = rules(tmp_path / "project", {}, config)
    assert found.get("OPENAI_API_KEY") == OPENAI
    assert not may_send(found, "OPENAI_API_KEY", "https://models.example/")
    assert may_send(found, "OPENAI_API_KEY", "https://api.openai.com/")


@pytest.mark.parametrize(
    ("hosts", "url", "expected"),
    [
        (["a.example"], "https://a.example/", True),
        (["a.example"], "http://a.example/", False),
        (["a.example"], "https://a.example:8443/", False),
        (["https://a.example"], "https://a.example/", True),
        (["https://a.example"], "http://a.example/", False),
        (["http://a.example"], "http://a.example/", True),
        (["http://a.example"], "https://a.example/", False),
        (["http://a.example"], "http://a.example:8080/", False),
        (["http://a.example:8080"], "http://a.example:8080/", True),
        (["a.example:8080"], "http://a.example:8080/", False),
        (["a.example:80"], "http://a.example/", False),
        (["http://*.a.example"], "http://b.a.example/", True),
        (["*.a.example"], "http://b.a.example/", False),
        (["a.example", "http://a.example"], "http://a.example/", True),
    ],
)
def test_a_binding_is_scheme_host_and_port(tmp_path, hosts, url, expected):
    found = rules(tmp_path, {"KEY": {"value": "value-0123456789", "hosts": hosts}}, {})
    assert may_send(found, "KEY", url) is expected


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (Principal(name="ci", role="edit"), False),
        (Principal(name="https://id.example|ann", role="edit"), False),
        (Principal(name="ann", owner="user:ann", role="edit"), False),  # a user of a web app
        (Principal(name="ops", role="admin"), True),
        (Principal(role="edit", owner="(local)"), True),  # of a server without any credential
        (LOCAL, True),
    ],
)
def test_who_may_store_a_tool_with_an_unbound_secret(tmp_path, caller, expected):
    (tmp_path / "onetool.yaml").write_text("secrets: {FREE: free-0123456789}\n")
    request = {"urlTemplate": "https://api.example.com/", "headers": {"X-A": "${FREE}"}}
    place = ("01890a5d-ac96-774b-bcce-000000000001", "t", "1")
    token = current_principal.set(caller)
    try:
        with App.open(tmp_path / "onetool.yaml") as app:
            app.bundles.put_bundle(place[0], {"slug": "mine"})
            with nullcontext() if expected else pytest.raises(ForbiddenError, match=r"--host api\.example\.com"):
                app.bundles.put_tool(*place, {"type": "http", "httpImpl": {"request": request}})
    finally:
        current_principal.reset(token)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://api.example:9402/x", "to https://api.example:9402, and this one goes to http://api.example:9402"),
        ("https://other.example/x", "to api.example:9402, and this one goes to other.example"),
    ],
)
def test_a_refusal_names_the_scheme_where_it_is_the_difference(tmp_path, url, said):
    secrets = {"KEY": {"value": "key-0123456789", "hosts": ["api.example:9402"]}}
    with pytest.raises(ToolFailure) as refused:
        rules(tmp_path, secrets, {}).check("KEY", parse_url(url))
    assert said in str(refused.value)
