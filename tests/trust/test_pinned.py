"""What a trusted folder can't change without another look, and what one that is not trusted can't make us open."""

import json

import pytest
from click.testing import CliRunner
from helpers import trusted

from onetool.app import App
from onetool.config.find import find
from onetool.core.errors import ConfigError
from onetool.interfaces.cli import cli
from onetool.interfaces.cli.init import init

pytestmark = pytest.mark.attack("cloned repositories")

EVIL = "from pathlib import Path\nPath({!r}).write_text('imported')\n"


class Project:
    def __init__(self, folder):
        self.folder, self.own = folder, folder / ".onetool"
        self.config = self.own / "onetool.yaml"
        self.own.mkdir()

    def write(self, **keys):
        self.config.write_text(json.dumps(keys))
        return self

    def secrets(self, **values):
        file = self.own / "secrets.yaml"
        file.write_text(json.dumps(values))
        file.chmod(0o600)
        return self

    def trust(self):
        trusted(self.folder)
        assert self.is_used()

    def is_used(self):
        return find(cwd=self.folder).untrusted is None


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Project(folder)


# Prompts


@pytest.mark.parametrize("named", [None, "prompts.yaml", "../texts/prompts.yaml"])
def test_prompts_through_a_link_that_leads_out_are_refused(named, project, tmp_path):
    (tmp_path / "mine.yaml").write_text("instructions: my own notes\n")
    link = project.own / (named or "prompts.yaml")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "mine.yaml")
    project.write(**({"prompts": named} if named else {}))
    trusted(project.folder)
    with pytest.raises(ConfigError, match="leads out of the project"):
        App.open()


def test_prompts_that_are_named_elsewhere_are_shown_by_where_they_are(project, tmp_path):
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text("instructions: notes\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "one.yaml")
    project.write(prompts="../../link.yaml").trust()
    with App.open() as app:
        assert app.config.texts.instructions == "notes"
    (tmp_path / "link.yaml").unlink()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "two.yaml")
    assert not project.is_used()


# Secrets in files


@pytest.mark.parametrize("where", ["config", "secrets"])
def test_the_files_of_secrets_are_shown_and_pinned(where, project, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"value-of-{name}")

    def write(path, name="KEY"):
        text = f"${{file:{path}}}"
        project.secrets(**({name: text} if where == "secrets" else {}))
        return project.write(settings={"brave": {"key": text if where == "config" else "${KEY}"}})

    write(tmp_path / "one").secrets(KEY="mine-alone") if where == "secrets" else project.write()
    project.trust()
    write(tmp_path / "one")
    assert not project.is_used()
    shown = CliRunner().invoke(cli, ["trust", "--yes"]).output
    assert f"+ {'secret KEY' if where == 'secrets' else 'settings.brave.key'}: ${{file:{tmp_path / 'one'}}}" in shown
    with App.open() as app:
        assert app.config.settings["brave"] == {"key": "value-of-one"}
        assert app.config.secrets.redact("value-of-one") == "***"
    write(tmp_path / "two")
    assert not project.is_used()


def test_a_link_of_the_project_to_a_secret_is_refused(project, tmp_path):
    (tmp_path / "mine").write_text("my-own-key")
    (project.folder / "link").symlink_to(tmp_path / "mine")
    project.write(settings={"brave": {"key": f"${{file:{project.folder / 'link'}}}"}})
    trusted(project.folder)
    with pytest.raises(ConfigError, match="a secret outside the project"):
        App.open()


# What a person writes


def test_a_broken_config_is_no_way_to_have_the_rest_trusted_along(project):
    project.write(allowedHosts=["a.example"])
    trusted(project.folder, packs=False)
    (project.own / "packs").mkdir()
    (project.own / "packs" / "evil.py").write_text("def hello() -> str:\n    'Hi.'\n    return 'hi'\n")
    project.config.write_text("allowedHosts: [\n")  # broken on purpose
    assert CliRunner().invoke(init, ["--force"]).exit_code == 0
    assert "evil" not in project.config.read_text()
    assert not project.is_used()


# Addresses that are made of the project's own secrets


SERVER = {"url": "https://a.example/mcp"}
ADDRESSES = {
    "an issuer": {"servers": {"s": {**SERVER, "auth": {"type": "oauth", "issuer": "${ISS}"}}}},
    "a part of an issuer": {"servers": {"s": {**SERVER, "auth": {"type": "oauth", "issuer": "https://${HOST}/"}}}},
    "a pack's address": {"settings": {"brave": {"base_url": "${ISS}"}}},
    "a pack's host": {"settings": {"brave": {"hosts": ["${HOST}"]}}},
    "an address that is called otherwise": {"settings": {"brave": {"auth": "${ISS}"}}},
}


@pytest.mark.parametrize("place", ADDRESSES)
def test_an_address_of_the_projects_own_secrets_is_pinned(place, project):
    project.secrets(ISS="https://a.example/", HOST="a.example").write(**ADDRESSES[place]).trust()
    project.secrets(ISS="https://evil.example/", HOST="evil.example")
    assert not project.is_used()


def test_a_key_may_be_another_one_tomorrow(project):
    project.secrets(KEY="key-0123456789", TOKEN="token-0123456789")
    project.write(
        settings={"brave": {"api_key": "${KEY}"}},
        servers={"s": {**SERVER, "headers": {"X": "${KEY}"}, "auth": {"type": "bearer", "token": "${TOKEN}"}}},
    ).trust()
    project.secrets(KEY="key-9876543210", TOKEN="token-9876543210")
    assert project.is_used()


# The key of our own door


@pytest.mark.parametrize("http", [{}, {"token": None}, {"token": "evil-9876543210-evil"}])
def test_the_token_of_the_server_can_not_be_taken_away(http, project):
    project.write(http={"token": "mine-0123456789-mine"}).trust()
    project.write(http=http)
    assert not project.is_used()
    assert "token" in str(find(cwd=project.folder).untrusted)
    trusted(project.folder)
    assert project.is_used()


# Before it is trusted


def test_nothing_of_it_is_opened_to_explain_a_missing_tool(project, monkeypatch):
    project.write(include=["../../mine.txt"], packs=["../packs"])
    monkeypatch.chdir(project.folder)
    with App.open() as app:
        monkeypatch.setattr("onetool.config.read.read_yaml", lambda path: pytest.fail(f"opened {path}"))
        assert "not trusted yet: run onetool trust" in str(app.catalog.why_missing("dice.roll"))
        assert app.catalog.why_missing("time.nope") is None


def test_checking_a_pack_of_it_does_not_run_it(project, tmp_path):
    flag = tmp_path / "flag"
    pack = project.folder / "evil.py"
    pack.write_text(EVIL.format(str(flag)))
    project.write()
    result = CliRunner().invoke(cli, ["packs", "check", str(pack)])
    assert (result.exit_code, flag.exists()) == (1, False)
    assert "run onetool trust" in result.output
    elsewhere = tmp_path / "mine.py"
    elsewhere.write_text("def hello() -> str:\n    'Hi.'\n    return 'hi'\n")
    assert CliRunner().invoke(cli, ["packs", "check", str(elsewhere)]).exit_code == 0
    trusted(project.folder)
    CliRunner().invoke(cli, ["packs", "check", str(pack)])
    assert flag.exists()


def test_literal_secrets_are_pinned_and_neither_shown_nor_stored(project, own_home):
    keys = {
        "database": "postgresql://me:hunter2hunter2@db/x",
        "metrics": "hunter2hunter2-metrics",
        "cluster": {"key": "hunter2" * 5},
        "http": {"token": "hunter2hunter2-token"},
        "settings": {"brave": {"api_key": "hunter2hunter2-key"}},
    }
    project.write(**keys)
    shown = CliRunner().invoke(cli, ["trust", "--yes"]).output
    assert "database: postgresql://me:***@db/x" in shown
    assert "hunter2" not in shown + (own_home / ".onetool" / "trust.json").read_text()
    for key in keys:
        project.write(**json.loads(json.dumps(keys).replace("hunter2hunter2", "hunter3hunter2")) | {key: keys[key]})
        assert not project.is_used()
    project.write(**keys)
    assert project.is_used()
