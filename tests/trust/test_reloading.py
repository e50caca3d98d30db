"""A server that runs while its folder changes, or while somebody trusts it."""

import pytest
from helpers import trusted

from onetool.app import App
from onetool.core.errors import ConfigError

PACK = "def hello() -> str:\n    'Say hello.'\n    return 'hi'\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / ".onetool" / "packs").mkdir(parents=True)
    (tmp_path / ".onetool" / "packs" / "greet.py").write_text(PACK)
    config = tmp_path / ".onetool" / "onetool.yaml"
    config.write_text("allowedHosts: [a.example]\n")
    monkeypatch.chdir(tmp_path)
    return config


def test_what_is_new_does_not_come_in_by_a_reload(config, tmp_path):
    trusted(tmp_path)
    with App.open() as app:
        assert "greet.hello" in app.catalog.registry.names()
        config.write_text("allowedHosts: [a.example, evil.example]\n")
        with pytest.raises(ConfigError, match="run onetool trust"):
            app.reload()
        assert [one.host for one in app.config.allowed_hosts] == ["a.example"]
        assert "greet.hello" in app.catalog.registry.names()
        trusted(tmp_path)
        app.reload()
        assert [one.host for one in app.config.allowed_hosts] == ["a.example", "evil.example"]


def test_what_is_trusted_meanwhile_does(config, tmp_path):
    with App.open() as app:
        assert app.untrusted is not None
        assert config in app._reloader.files()
        app.reload()
        assert "greet.hello" not in app.catalog.registry.names()
        trusted(tmp_path)
        app.reload()
        assert app.untrusted is None
        assert "greet.hello" in app.catalog.registry.names()


def test_a_harmless_edit_is_read_once_more_and_then_known(config, tmp_path, own_home):
    trusted(tmp_path)
    before = (own_home / ".onetool" / "trust.json").read_text()
    config.write_text("allowedHosts: [a.example]\naliases: {now: time.now}\n")
    with App.open() as app:
        assert app.config.aliases == {"now": "time.now"}
    after = (own_home / ".onetool" / "trust.json").read_text()
    assert after != before
    with App.open():
        assert (own_home / ".onetool" / "trust.json").read_text() == after
