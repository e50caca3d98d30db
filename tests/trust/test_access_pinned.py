"""Who may call a project's server: a project can't change that without another look."""

import json

import pytest
from click.testing import CliRunner
from trust.test_pinned import project as project  # a fixture

from onetool.interfaces.cli import cli

HASH = "sha256:" + "ab" * 32
CI = {"name": "ci", "hash": HASH, "tools": ["time.*"]}
BOSS = {"name": "boss", "hash": "sha256:" + "cd" * 32, "role": "admin"}
JWT = {"issuer": "https://id.example", "audience": "x", "scopes": {"all": {"role": "call"}}}
BEFORE = {"menu": "run", "http": {"port": 8765}}


def http(**keys):
    return {"menu": "run", "http": {"port": 8765, **keys}}


BROUGHT = {
    "a token": (http(), http(tokens=[CI])),
    "another token": (http(tokens=[CI]), http(tokens=[CI, BOSS])),
    "another hash": (http(tokens=[CI]), http(tokens=[{**CI, "hash": BOSS["hash"]}])),
    "a higher role": (http(tokens=[CI]), http(tokens=[{**CI, "role": "admin"}])),
    "more tools": (http(tokens=[CI]), http(tokens=[{**CI, "tools": ["*"]}])),
    "a longer life": (http(tokens=[{**CI, "expires": "2027-01-01"}]), http(tokens=[CI])),
    "jwt": (http(), http(jwt=JWT)),
    "another issuer": (http(jwt=JWT), http(jwt={**JWT, "issuer": "https://evil.example"})),
    "other keys": (http(jwt=JWT), http(jwt={**JWT, "jwks": "https://evil.example/keys"})),
    "a grant": (http(jwt=JWT), http(jwt={**JWT, "scopes": {"all": {"role": "admin"}}})),
    "an address": (http(), http(url="https://tools.example.com")),
    "local access": (http(), http(local="edit")),
    "no audit log": (http(), {**http(), "audit": "none"}),
    "an audit log that is not required": ({**http(), "audit": "required"}, {**http(), "audit": "usual"}),
    "a shorter audit log": (http(), {**http(), "audit": {"retention_days": 1}}),
    "the usual audit log": ({**http(), "audit": "required"}, http()),
    "no tokens": (http(tokens=[CI, BOSS]), http()),
    "no jwt": (http(tokens=[CI], jwt=JWT), http(tokens=[CI])),
    "no address": (http(url="https://tools.example.com"), http()),
    "no local access": (http(local="call"), http()),
    "a token less": (http(tokens=[CI, BOSS]), http(tokens=[CI])),
    "the usual audit log again": ({**http(), "audit": "none"}, http()),
}


@pytest.mark.parametrize("change", BROUGHT)
def test_who_may_call_is_pinned(change, project):
    before, after = BROUGHT[change]
    project.write(**before).trust()
    project.write(**after)
    assert not project.is_used()
    project.write(**before)
    assert project.is_used()


def test_a_hash_of_the_projects_own_secrets_is_pinned(project):
    project.secrets(WHO=HASH).write(**http(tokens=[{**CI, "hash": "${WHO}"}])).trust()
    project.secrets(WHO=BOSS["hash"])
    assert not project.is_used()


def test_roles_and_tools_are_shown(project):
    project.write(**http(tokens=[CI, BOSS], jwt=JWT))
    shown = CliRunner().invoke(cli, ["trust", "--yes"]).output
    for part in (
        "http.tokens[0].name: ci",
        "http.tokens[0].tools[0]: time.*",
        "http.tokens[1].role: admin",
        "http.jwt.issuer: https://id.example",
    ):
        assert part in shown
    project.write(**http())
    assert "- http.jwt.issuer: https://id.example" in CliRunner().invoke(cli, ["trust", "--yes"]).output


@pytest.mark.parametrize("tokens", ["x", 3, {"name": "a"}, [3, ["b"]]])
def test_what_is_not_shaped_as_it_should_be_is_told_too(tokens, project):
    project.write(**http()).trust()
    project.config.write_text(json.dumps(http(tokens=tokens, jwt="y")))
    assert not project.is_used()
