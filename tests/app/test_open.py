"""What opening an app makes: each of its parts once."""

import sys
from collections import Counter

import pytest
from helpers import cli

from onetool import App

PARTS = {
    "onetool.app.runtime": ["Runtime"],
    "onetool.app.catalog": ["ToolCatalog"],
    "onetool.app.bundles": ["AppBundles"],
    "onetool.app.reload": ["Reloader", "ConfigWatcher"],
    "onetool.app.bundle_runtime": ["AppBundleRuntime"],
    "onetool.services.secrets": ["Secrets"],
    "onetool.sources.packs": ["PackSource", "Registry"],
    "onetool.sources.mcp_servers.servers": ["Servers"],
    "onetool.sources.bundles.service": ["BundleService"],
    "onetool.sources.bundles.tool_factory": ["ToolFactory"],
    "onetool.sources.bundles.store.store": ["BundleStore"],
    "onetool.sources.bundles.store.rows": ["Mirror"],
}


@pytest.fixture
def made(monkeypatch):
    """How often each part was made."""
    found = Counter()

    def counted(kind):
        real = kind.__init__

        def method(self, *args, **options):
            found[kind.__name__] += 1
            real(self, *args, **options)

        monkeypatch.setattr(kind, "__init__", method)

    for module, names in PARTS.items():
        __import__(module)
        for name in names:
            counted(getattr(sys.modules[module], name))
    return found


def test_opening_an_app_makes_each_of_its_parts_once(tmp_path, made):
    (tmp_path / "sums.py").write_text("def add(a: int) -> int:\n    return a + 1\n")
    (tmp_path / "onetool.yaml").write_text("packs: [sums.py]\nservers: {some: {command: some-server}}\n")
    (tmp_path / "bundles").mkdir()
    with App.open(tmp_path / "onetool.yaml"):
        assert made == Counter({name: 1 for names in PARTS.values() for name in names})


def test_the_app_is_small_and_what_the_documents_name_is_there(tmp_path):
    (tmp_path / "onetool.yaml").write_text("")
    with App.open(tmp_path / "onetool.yaml") as app:
        members = {name for name in dir(app) if not name.startswith("_")}
    actions = {"open", "call", "run", "run_sync", "ask", "reload", "connect", "on_change", "close"}
    facts = {"tools", "search", "info", "health", "mistakes", "untrusted", "servers", "bundles", "sessions", "config"}
    assert actions | facts <= members
    for_interfaces = {
        "reply",
        "user_call",
        "on_close",
        "on_call",
        "check_code",
        "code_names",
        "snippets",
        "ask_models",
        "findings",
        "reload_error",
        "pending_changes",
        "pending_count",
        "follow_settings",
        "follows_files",
        "look_again",
        "reload_settings",
    }
    assert (
        members - actions - facts
        == {"journal", "catalog", "database", "runtime", "serve_beside", "keep_database", "require_state"}
        | for_interfaces
    )


def test_a_command_that_stores_nothing_makes_no_state_folder(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    home = {"ONETOOL_HOME": str(tmp_path / "home")}
    assert cli("tools", "list", "--config", str(tmp_path / "onetool.yaml"), cwd=tmp_path, env=home).returncode == 0
    assert not (tmp_path / "home").exists()
