"""Servers behind a company's certificate authority, proxy or package index."""

import json
import os

import pytest

PROXIES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"]
FILES = ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "npm_config_cafile"]
INDEXES = [
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "npm_config_registry"),
]
VALUES = {
    **dict.fromkeys((*PROXIES, *map(str.lower, PROXIES)), "http://proxy.corp.test:3128"),
    **{name: f"/etc/corp/a@b/{name}.pem" for name in FILES},
    **{name: f"https://packages.corp.test/@{name}/simple" for name in INDEXES},
    "UV_NATIVE_TLS": "true",
}
UNKNOWN_CA = "error sending request for url (https://pypi.org/simple/x/): invalid peer certificate: UnknownIssuer"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in VALUES:
        monkeypatch.delenv(name, raising=False)


def seen_by(harness, **settings):
    """Return the environment of a server, as it says itself."""
    harness.config({"good": harness.nasty("ok", **settings)})
    done = harness.cli("tools", "invoke", "good.environment", "--envelope")
    return json.loads(done.stdout)["result"]["data"]


def failed(harness, words, **settings):
    """Return what `servers test` says of a server that ends with these words on standard error."""
    harness.config({"bad": harness.nasty("fails_with", words, **settings)})
    done = harness.cli("servers", "test", "bad", "--json")
    assert done.returncode == 1
    return json.loads(done.stdout)


def test_a_server_gets_the_variables_of_the_network_and_no_others(harness, monkeypatch):
    for name, value in {
        **VALUES,
        "UV_INDEX_CORP_PASSWORD": "hunter22",
        "PIP_CONFIG_FILE": "/x",
        "NODE_OPTIONS": "-",
    }.items():
        monkeypatch.setenv(name, value)
    before = {"PATH", "HOME", "LANG", "LANGUAGE", "PIDS"}
    seen = {
        name: value for name, value in seen_by(harness).items() if name not in before and not name.startswith("LC_")
    }
    assert seen == VALUES


def test_a_block_turns_them_off(harness, monkeypatch):
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    assert not VALUES.keys() & seen_by(harness, inherit=False).keys()
    error = failed(harness, UNKNOWN_CA, inherit=False)["error"]
    assert "inherit: false in its block keeps these variables from it: SSL_CERT_FILE" in error


def test_what_a_block_names_itself_comes_first(harness, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", VALUES["HTTPS_PROXY"])
    monkeypatch.setenv("SSL_CERT_FILE", "/ours.pem")
    seen = seen_by(harness, env={"https_proxy": "http://mine.test", "SSL_CERT_FILE": "/mine.pem"})
    assert (seen["https_proxy"], seen.get("HTTPS_PROXY"), seen["SSL_CERT_FILE"]) == (
        "http://mine.test",
        None,
        "/mine.pem",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://ann:hunter22@proxy.corp.test:3128"),
        ("https_proxy", "ann:hunter22@proxy.corp.test:3128"),
        ("UV_INDEX_URL", "https://hunter22@packages.corp.test/simple"),
        ("UV_INDEX", "https://packages.corp.test/a corp=https://ann:hun/ter22@packages.corp.test/b"),
        ("npm_config_registry", "https://packages.corp.test/npm?auth_token=hunter22"),
    ],
)
def test_a_url_with_credentials_is_not_passed_and_the_error_says_how(harness, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert name not in seen_by(harness)
    line = f'add env: {{{name}: "${{{name}}}"}}'
    result = failed(harness, "no license key")
    assert line in result["error"]
    assert "ter22" not in json.dumps(result)
    assert seen_by(harness, env={name: f"${{{name}}}"})[name] == "***"  # a secret of the config now


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        UNKNOWN_CA,
        "npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
        "npm error code SELF_SIGNED_CERT_IN_CHAIN",
        "npm error network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND",
        "npm error code EAI_AGAIN",
        "dns error: failed to lookup address information: Temporary failure in name resolution",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate",
    ],
)
def test_a_certificate_or_name_error_names_the_variables(harness, words):
    error = failed(harness, f"{words}\n" + "at some line of some file\n" * 5)["error"]
    assert all(name in error for name in VALUES if name not in map(str.lower, PROXIES))


def test_another_error_does_not_speak_of_the_network(harness):
    assert "SSL_CERT_FILE" not in failed(harness, "no license key: set LICENSE_KEY")["error"]


def test_the_log_masks_the_values(harness, monkeypatch):
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    result = failed(harness, "$UV_INDEX_URL/x/: $SSL_CERT_FILE $HTTPS_PROXY $UV_NATIVE_TLS: invalid peer certificate")
    shown = json.dumps(result) + harness.cli("servers", "logs", "bad").stdout
    assert "***/x/: *** *** true: invalid peer certificate" in shown
    kept = [file for file in harness.folder.rglob("*") if file.is_file() and file.name != "onetool.yaml"]
    texts = [shown, *(file.read_text(errors="replace") for file in kept)]
    assert not [text for text in texts if "corp.test" in text or "/etc/corp" in text]
    assert os.environ["HTTPS_PROXY"] == VALUES["HTTPS_PROXY"]
