"""A server of this machine reads settings again by itself; code waits for a reload, and everybody is told."""

import asyncio

import pytest
from helpers import trusted, until

from onetool.app import App
from onetool.core.errors import ConfigError
from onetool.services import file_watcher

PACK = 'def hello() -> str:\n    """Say hello."""\n    return "{}"\n'
QUIET = "stats: {enabled: false}\n"
SERVER = "servers: {clock: {command: no-such-clock, args: [%s]}}\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Poll every 20 ms: nobody wants to wait for tests. Gives the watchers that were made."""
    made = []

    class Quick(file_watcher.FileWatcher):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(file_watcher, "FileWatcher", Quick)
    monkeypatch.setattr("onetool.app.reload.POLL_S", 0.02)
    return made


class Place:
    """A folder with a config and a pack, and the app of a server that only this machine reaches."""

    def __init__(self, folder, config=QUIET):
        self.folder = folder
        (folder / "packs").mkdir()
        self.write(PACK.format("further"), "further.py")
        self.write(config)
        self.write(PACK.format("one"), "packs/greet.py")
        self.app = App.open(folder / "onetool.yaml")
        self.app.follow_settings()
        self.app.connect()

    def write(self, text, name="onetool.yaml"):
        draft = self.folder / f"{name}.draft"
        draft.write_text(text)
        draft.chmod(0o600)
        draft.rename(self.folder / name)

    def run(self, code):
        return asyncio.run(self.app.run(code))

    def waiting(self):
        return "\n".join(map(str, self.app.pending_changes()))


@pytest.fixture
def place(tmp_path):
    with_app = []

    def make(config=QUIET):
        with_app.append(Place(tmp_path, config))
        return with_app[0]

    yield make
    for one in with_app:
        one.app.close()


def test_settings_are_read_again_and_packs_are_not(place):
    here = place()
    here.write(PACK.format("two"), "packs/greet.py")
    here.write(f"{QUIET}aliases: {{hi: greet.hello}}\nallowedHosts: [api.example.com]\n")
    until(lambda: here.app.config.allowed_hosts)
    assert here.run("hi()").value() == "one"
    until(lambda: here.app.pending_count == 1)
    assert "greet.py" in here.waiting()
    assert "started with --watch" in here.waiting()
    here.app.reload()
    assert here.run("hi()").value() == "two"
    assert (here.waiting(), here.app.pending_count) == ("", 0)


@pytest.mark.parametrize("config", [QUIET, f"{QUIET}watch: true\n"])
def test_a_config_that_could_not_be_loaded_is_pending(place, config):
    here = place(config)
    here.write(f"{config}aliases: [oops\n")
    until(lambda: here.app.pending_count == 1)
    assert "can't be read" in here.waiting()
    here.write(f"{config}aliases: {{hi: greet.hello}}\n")
    until(lambda: here.app.pending_count == 0)
    until(lambda: here.app.config.aliases)  # a reload counts when it begins
    assert here.run("hi()").value() == "one"


def test_the_first_secret_is_seen_and_a_changed_one(place):
    here = place()
    for value in ("first-secret", "second-secret"):
        here.write(f"KEY: {value}\n", "secrets.yaml")
        until(lambda value=value: here.app.config.secrets.get("KEY") == value)


def test_a_secret_reaches_the_server_that_has_it_in_its_environment(place):
    here = place(QUIET + "servers: {clock: {command: no-such-clock, args: ['${KEY}'], env: {TOKEN: '${KEY}'}}}\n")
    here.write("KEY: second-secret\n", "secrets.yaml")
    until(lambda: here.app.config.servers["clock"].env["TOKEN"] == "second-secret")
    assert here.app.config.servers["clock"].args == ("second-secret",)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", SERVER % "a", "servers.clock"),
        (SERVER % "a", SERVER % "b", "servers.clock"),
        (SERVER % "a", (SERVER % "a").replace("args", "env: {PATH: /tmp}, args"), "servers.clock"),
        ((SERVER % "a").replace("args", "enabled: false, args"), SERVER % "a", "servers.clock"),
        ("", "packs: [further.py]\n", "packs"),
        ("", "watch: true\n", "watch"),
    ],
)
def test_code_of_the_config_waits_and_its_settings_do_not(place, caplog, before, after, said):
    here = place(QUIET + before)
    code = [getattr(here.app.config, key) for key in ("servers", "packs", "watch")]
    here.write(f"{QUIET}{after}aliases: {{now: time.now}}\n")
    until(lambda: here.app.config.aliases)
    assert [getattr(here.app.config, key) for key in ("servers", "packs", "watch")] == code
    assert said in here.waiting()
    assert "ot.reload()" in here.waiting()
    assert "kill" not in here.waiting()  # nobody handles that signal here: a web app with our tools would end
    until(lambda: "Not loaded: " in caplog.text)
    assert any("Not loaded: " in one and said in one for one in here.app.health()["findings"])
    here.app.reload()
    assert [getattr(here.app.config, key) for key in ("servers", "packs", "watch")] != code
    assert "Not loaded: " not in str(here.app.health())


def test_less_code_is_a_setting(place):
    here = place(QUIET + SERVER % "a")
    here.write(QUIET + (SERVER % "a").replace("args", "timeout: 5, args"))
    until(lambda: here.app.config.servers["clock"].timeout == 5)
    here.write(QUIET + (SERVER % "b").replace("args", "enabled: false, args"))
    until(lambda: not here.app.config.servers["clock"].enabled)
    here.write(QUIET)
    until(lambda: not here.app.config.servers)
    assert here.waiting() == ""


@pytest.mark.parametrize("is_new", [True, False])
def test_includes_wait(place, tmp_path, is_new):
    more = "include: [more.yaml]\n"
    (tmp_path / "more.yaml").write_text("menu: direct\n")
    here = place(QUIET if is_new else QUIET + more)
    if is_new:
        here.write(QUIET + more)
        until(lambda: "its includes have changed" in here.waiting())
    else:
        here.write("menu: search\n", "more.yaml")
        until(lambda: "more.yaml" in here.waiting())
    assert here.app.config.menu == ("run" if is_new else "direct")
    here.app.reload()
    assert here.app.config.menu == ("direct" if is_new else "search")


def test_a_missing_tool_says_what_waits(place):
    here = place()
    here.write(PACK.format("one"), "packs/other.py")
    until(here.waiting)
    for code in ("other.hello()", "greet.nothing()", "ot.call('other.hello')"):
        error = here.run(code).error
        assert "packs/other.py" in error.message, code
        assert "ot.reload()" in error.message, code


def test_settings_alone_are_read_on_request(tmp_path):
    """As after an import over REST that stores secrets: it may be that of somebody who may not load code."""
    here = Place(tmp_path, f"{QUIET}watch: false\n")
    here.write(PACK.format("two"), "packs/greet.py")
    here.write("KEY: first-secret\n", "secrets.yaml")
    here.app.reload_settings()
    assert here.app.config.secrets.get("KEY") == "first-secret"
    assert here.run("greet.hello()").value() == "one"
    assert "greet.py" in here.waiting()
    here.app.close()


def test_half_a_file_changes_nothing_and_is_told(place, caplog):
    here = place(f"{QUIET}aliases: {{now: time.now}}\n")
    here.write("aliases: {now: [")
    until(lambda: "while parsing a flow node" in str(here.app.health().get("findings")))
    until(lambda: "the previous config stays in effect" in caplog.text)
    assert here.app.config.aliases == {"now": "time.now"}
    here.write(f"{QUIET}aliases: {{then: time.now}}\n")
    until(lambda: here.app.config.aliases == {"then": "time.now"})
    assert "findings" not in here.app.health()


def test_watch_false_turns_it_off(place, quick):
    here = place(QUIET)
    here.write(f"{QUIET}watch: false\n")
    until(lambda: here.app.config.watch is False)
    quick[0]._thread.join(20)
    assert not quick[0]._thread.is_alive()
    here.app.connect()
    assert len(quick) == 1


def test_what_was_loaded_by_hand_does_not_wait(place, quick):
    """Somebody reloads before the watcher has noticed the change."""
    here = place()
    here.write(PACK.format("two"), "packs/greet.py")
    here.app.reload()
    here.write(PACK.format("three"), "packs/other.py")
    until(lambda: "other.py" in here.waiting())
    assert "greet.py" not in here.waiting()


def test_a_missing_tool_is_explained_by_all_pending_changes_and_one_way_to_load_them(place):
    here = place()
    for name in ("dice", "coin"):
        here.write(PACK.format(name), f"packs/{name}.py")
    until(lambda: here.app.pending_count == 2)
    message = here.run("dice.hello()").error.message
    assert ("dice.py: new" in message, "coin.py: new" in message, message.count("load it: ")) == (True, True, 1)


def test_code_that_could_not_be_loaded_stays_told_until_it_is_mended(place):
    """The watcher sees the new file after somebody has tried to load it."""
    here = place()
    here.write("def one(:\n", "packs/broken.py")
    with pytest.raises(ConfigError):
        here.app.reload()
    here.app.reload_settings()
    assert "can't be read" in here.waiting()
    here.write(PACK.format("mended"), "packs/broken.py")
    until(lambda: "broken.py: new" in here.waiting())


def test_an_untrusted_change_of_a_trusted_folder_is_not_loaded(tmp_path, monkeypatch):
    folder = tmp_path / "project" / ".onetool"
    folder.mkdir(parents=True)
    (folder / "onetool.yaml").write_text(QUIET)
    trusted(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    with App.open() as app:
        app.follow_settings()
        app.connect()
        assert app.config.whose == "project"
        (folder / "onetool.yaml").write_text(f"{QUIET}{SERVER % 'a'}aliases: {{now: time.now}}\n")
        until(lambda: "the change is not used" in str(app.health().get("findings")))
        assert not app.config.servers
        assert not app.config.aliases
        trusted(tmp_path / "project")
        until(lambda: app.config.aliases)
        assert not app.config.servers
        assert "servers.clock" in str(app.pending_changes())


def test_a_folder_that_is_trusted_while_it_runs_waits(tmp_path, monkeypatch):
    folder = tmp_path / "project" / ".onetool"
    folder.mkdir(parents=True)
    (folder / "onetool.yaml").write_text(f"{QUIET}aliases: {{now: time.now}}\n")
    monkeypatch.chdir(tmp_path / "project")
    with App.open() as app:
        app.follow_settings()
        app.connect()
        trusted(tmp_path / "project")
        until(app.pending_changes)
        assert not app.config.aliases
        app.reload()
        assert app.config.aliases
        assert not app.pending_changes()


def test_a_config_that_appears_is_read(own_home, tmp_path, monkeypatch):
    """`onetool hosts allow` makes one where there is none."""
    monkeypatch.chdir(tmp_path)
    with App.open() as app:
        app.follow_settings()
        app.connect()
        config = app.config.home / "onetool.yaml"
        config.parent.mkdir(exist_ok=True)
        config.write_text("allowedHosts: [api.example.com]\n")
        until(lambda: app.config.allowed_hosts)


TOKENS = """\
http:
  tokens:
    - name: ci
      role: call
      hash: "sha256:{}"
      tools: ["time.*"]
""".format("0" * 64)
ROOTS = "fs: {roots: [notes]}\naudit: required\n"


@pytest.mark.attack("cloned repositories")
@pytest.mark.parametrize("half", ["", "http:\n", TOKENS.partition("      tools")[0], None])
def test_a_half_written_config_opens_nothing(place, half):
    here = place(QUIET + TOKENS + ROOTS)
    before = here.app.config
    here.write("" if half == "" else QUIET + (half or "") + "aliases: {now: time.now}\n")
    until(lambda: ("missing or empty" if half == "" else "http.tokens") in here.waiting())
    assert (here.app.config.http, here.app.config.fs, here.app.config.audit) == (before.http, before.fs, before.audit)
    if half is None:
        assert all(key in here.waiting() for key in ("fs", "audit"))
        assert here.app.config.aliases == {"now": "time.now"}  # all else is a setting
    here.app.reload()
    assert here.waiting() == ""
    assert here.app.config.fs != before.fs


@pytest.mark.attack("cloned repositories")
@pytest.mark.parametrize("half", ["", "http:\n", "http: {admin: true}\n"])
def test_a_server_for_calls_only_stays_so(place, half):
    here = place(QUIET + "http:\n  admin: false\n")
    here.write(QUIET + half + "aliases: {now: time.now}\n")
    until(lambda: here.app.config.aliases)
    assert here.app.config.http.admin is False
    assert "http.admin" in here.waiting()
    here.app.reload()
    assert here.app.config.http.admin is not False


@pytest.mark.attack("cloned repositories")
def test_a_config_that_is_gone_stays_in_force(place):
    here = place(QUIET + "http: {token: 0123456789abcdef}\n")
    (here.folder / "onetool.yaml").unlink()
    until(lambda: "missing or empty" in here.waiting())
    assert here.app.config.http.token == "0123456789abcdef"


def test_more_credentials_are_taken_over(place):
    here = place(QUIET)
    here.write(QUIET + "http: {token: 0123456789abcdef}\n")
    until(lambda: here.app.config.http.token == "0123456789abcdef")
    here.write(QUIET + "http: {token: fedcba9876543210}\n")
    until(lambda: here.app.config.http.token == "fedcba9876543210")
    assert here.waiting() == ""


@pytest.mark.attack("credentials")
def test_settings_read_for_a_caller_load_no_code(place):
    here = place(QUIET + "watch: false\n")
    here.write(PACK.format("two"), "packs/greet.py")
    here.write(QUIET + "watch: false\naliases: {now: time.now}\n")
    here.app.reload_settings()
    assert here.app.config.aliases == {"now": "time.now"}
    assert here.run("greet.hello()").data == "one"


@pytest.fixture
def untrusted(tmp_path, monkeypatch):
    """A project's folder with a pack that nobody has trusted."""
    packs = tmp_path / "project" / ".onetool" / "packs"
    packs.mkdir(parents=True)
    (packs / "greet.py").write_text(PACK.format("one"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_packs_beside_the_own_config_wait_for_trust_and_a_reload(untrusted, own_home):
    (own_home / ".onetool").mkdir()
    (own_home / ".onetool" / "onetool.yaml").write_text(QUIET)
    with App.open() as app:
        app.follow_settings()
        app.connect()
        assert "run onetool trust, then " in str(app.untrusted)
        trusted(untrusted)
        until(app.pending_changes)
        assert "packs: new (load it: " in str(app.pending_changes()[0])
        assert app.untrusted is None
        assert asyncio.run(app.run("greet.hello()")).error
        app.reload()
        assert asyncio.run(app.run("greet.hello()")).value() == "one"
        assert not app.pending_changes()


def test_everything_is_loaded_when_the_folder_is_trusted_with_watch(untrusted):
    with App.open(watch=True) as app:
        app.connect()
        assert str(app.untrusted).endswith("run onetool trust")
        trusted(untrusted)
        until(lambda: "greet.hello" in app.catalog.registry.names())


def test_nobody_looks_into_packs_that_are_not_trusted(untrusted):
    with App.open() as app:
        app.follow_settings()
        app.connect()
        assert untrusted / ".onetool" / "onetool.yaml" in app._reloader.files()
        assert untrusted / ".onetool" / "packs" not in app._reloader.files()


def test_packs_of_a_project_go_on_when_an_own_config_appears(tmp_path, monkeypatch, own_home):
    packs = tmp_path / ".onetool" / "packs"
    packs.mkdir(parents=True)
    (packs / "greet.py").write_text(PACK.format("one"))
    trusted(tmp_path)
    monkeypatch.chdir(tmp_path)
    with App.open() as app:
        (own_home / ".onetool" / "onetool.yaml").write_text("aliases: {now: time.now}\n")
        app.reload()
        assert app.config.aliases == {"now": "time.now"}
        assert asyncio.run(app.run("greet.hello()")).data == "one"
