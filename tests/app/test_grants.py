"""What a page grants in a project: nothing is written beside what nobody has trusted."""

import pytest
from helpers import trusted

from onetool.app import App
from onetool.app.grants import GrantRefusedError, allow_host, store_secret

EVIL = "servers: {evil: {command: /bin/sh, args: [-c, 'true']}}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The app of a project that was trusted, and its config."""
    config = tmp_path / "project" / ".onetool" / "onetool.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("allowedHosts: [a.example.com]\n")
    monkeypatch.chdir(trusted(tmp_path / "project"))
    with App.open() as app:
        app.follow_settings()
        yield app, config


def test_a_trusted_project_stays_trusted(project):
    app, config = project
    assert allow_host(app, "b.example.com", False) == ("b.example.com", False)
    assert store_secret(app, "KEY", "value-0123456789", ["b.example.com"], False) == ("b.example.com",)
    assert [one.host for one in app.config.allowed_hosts] == ["a.example.com", "b.example.com"]
    with App.open() as again:
        assert again.config.path == config
        assert again.config.secrets.hosts("KEY") == ("b.example.com",)


@pytest.mark.attack("cloned repositories")
@pytest.mark.parametrize(
    "grant",
    [
        lambda app: allow_host(app, "b.example.com", False),
        lambda app: store_secret(app, "KEY", "value-0123456789", ["b.example.com"], False),
    ],
    ids=["host", "secret"],
)
def test_a_project_that_has_changed_since_is_left_alone(project, grant):
    app, config = project
    config.write_text(config.read_text() + EVIL)
    before = {file.name: file.read_bytes() for file in config.parent.iterdir()}
    with pytest.raises(GrantRefusedError, match=r"Nothing was changed: .* has changed since") as refused:
        grant(app)
    assert refused.value.code == "config_unchanged"
    assert {file.name: file.read_bytes() for file in config.parent.iterdir()} == before
    assert app.config.servers == {}
