"""A reload takes all of what is new, or nothing; what is under way goes on with what it began with."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import CHECKPOINTS, Checkpoint, until

import onetool
from onetool.app import App
from onetool.app.reload import Reloader
from onetool.core.errors import ConfigError

PACK = '''
def hello() -> str:
    """Say hello."""
    return "{}"
'''
TOOL = (
    "tools: [{name: weather, description: Tells it., type: function, handler: weather,"
    " parameters: {type: object, properties: {}}, implementation: {type: mock, mock_response: 21}}]\n"
)
PATIENCE = 60
GATE = "from helpers import CHECKPOINTS\ngate = CHECKPOINTS['reload']\n"  # how a pack begins that waits at it


class Place:
    """A folder with a config, and the app that has it in force."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "packs").mkdir()
        self.write("stats: {enabled: false}\n")
        self.pack("one")
        self.app = App.open(folder / "onetool.yaml")

    def watch(self):
        """Open the app once more, watching its files."""
        self.app.close()
        self.app = App.open(self.folder / "onetool.yaml", watch=True)

    def write(self, text, name="onetool.yaml"):
        (self.folder / name).write_text(text)

    def pack(self, says, name="greet"):
        self.write(PACK.format(says), f"packs/{name}.py")

    def says(self):
        return asyncio.run(self.app.run("greet.hello()")).value()

    def state(self):
        """Everything that a reload could change."""
        app = self.app
        return (
            app.config,
            app.catalog.registry.snapshot(),
            app.mistakes,
            app.catalog.prompts,
            app.runtime.engine,
            app.runtime.executor,
        )


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.app.close()


@pytest.fixture
def gate(monkeypatch):
    gate = Checkpoint()
    monkeypatch.setitem(CHECKPOINTS, "reload", gate)
    return gate


def test_all_of_it_is_read_again(place):
    assert place.says() == "one"
    place.pack("two")
    place.pack("three", name="other")
    place.write(f"{TOOL}aliases: {{hi: greet.hello}}\nstats: {{enabled: false}}\n")
    place.write("packs: {greet: Say it loud.}\n", "prompts.yaml")
    place.app.reload()
    assert place.says() == "two"
    assert asyncio.run(place.app.run("[hi(), other.hello(), weather()]")).value() == ["two", "three", 21]
    [greet] = asyncio.run(place.app.run('ot.packs(pattern="greet", info="full")')).value()
    assert greet["instructions"] == "Say it loud."


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("onetool.yaml", "menus: run\n", "menus"),
        ("onetool.yaml", "tools: [", "while parsing a flow node"),
        ("onetool.yaml", "tools: [{name: odd}]\n", "odd"),
        ("onetool.yaml", TOOL.replace("]\n", ", " + TOOL.partition("[")[2]), "weather"),
        ("prompts.yaml", "runs: x\n", "runs"),
        ("packs/greet.py", "def hello(:\n", "greet.py"),
        ("packs/more.py", "import no_such_module_at_all\nx = 1 / 0\n", "more.py"),
    ],
)
def test_what_can_not_be_used_changes_nothing_and_is_told(place, file, text, said):
    before = place.state()
    place.pack("two")
    place.write(text, file)
    with pytest.raises(ConfigError, match=said):
        place.app.reload()
    assert all(now is then for now, then in zip(place.state(), before, strict=True))
    assert place.says() == "one"
    assert place.app.health()["registry"]["status"] == "ok"


def test_the_tool_says_what_is_wrong(place):
    place.write("menus: run\n")
    error = asyncio.run(place.app.run("ot.reload()")).error
    assert error is not None
    assert "not reloaded, the previous config stays in effect" in error.message
    assert "onetool.yaml:1" in error.message
    assert "menus" in error.message


def test_what_was_broken_before_does_not_stand_in_the_way(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "bad.py").write_text("def hello(:\n")
    (tmp_path / "onetool.yaml").write_text("tools: [{name: odd}]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        assert len(app.mistakes) == 2
        (tmp_path / "onetool.yaml").write_text(
            "# one line further down\n\ntools: [{name: odd}]\naliases: {n: time.now}\n"
        )
        app.reload()
        assert app.config.aliases == {"n": "time.now"}
        assert len(app.mistakes) == 2


def test_a_run_under_way_ends_with_the_tools_it_began_with(place, gate):
    place.write(
        f"{GATE}async def slow() -> str:\n    'Wait.'\n    await gate.pause()\n    return 'waited'\n",
        "packs/slowly.py",
    )
    place.app.reload()

    async def both():
        running = asyncio.create_task(place.app.run("slowly.slow() + greet.hello()"))
        await gate.arrival()
        (place.folder / "packs" / "slowly.py").unlink()
        place.pack("two")
        await asyncio.to_thread(place.app.reload)
        assert place.app.catalog.registry.get("slowly.slow") is None
        gate.open()
        return await running

    assert asyncio.run(both()).value() == "waitedone"
    assert place.says() == "two"


def test_many_at_once_are_joined(place, monkeypatch):
    reloads = []
    whole = Reloader._reload
    monkeypatch.setattr(Reloader, "_reload", lambda self: (reloads.append(1), time.sleep(0.1), whole(self)))
    with ThreadPoolExecutor(8) as threads:
        for round in range(3):
            place.pack(str(round))
            list(threads.map(lambda _: place.app.reload(), range(8)))
            assert place.says() == str(round)
    assert len(reloads) <= 9  # not 24: who waits for his turn is content with the one that begins after he asked
    place.write("menus: run\n")
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(place.app.reload) for _ in range(8)]
    assert all(isinstance(one.exception(), ConfigError) for one in asked)


def test_nobody_gets_more_workers_by_it(place):
    place.write("run: {workers: 2, timeout_s: 20}\nstats: {enabled: false}\n")
    place.app.reload()

    async def storm():
        runs = []
        for _ in range(4):
            runs += [asyncio.create_task(place.app.run("while True: pass")) for _ in range(2)]
            await asyncio.sleep(0.3)
            await asyncio.to_thread(place.app.reload)
        workers = _children()
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        return workers

    before = _children()
    assert len(asyncio.run(storm()) - before) <= 3  # two, and a shell that ends them if we no longer can


def _children():
    """The processes that we have started."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("only Linux tells whom we have started")
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def test_it_can_be_called_in_a_run_and_the_next_one_has_what_is_new(place):
    place.pack("two")
    assert asyncio.run(place.app.run("[ot.reload(), greet.hello()]")).value() == ["OK: Configuration reloaded", "one"]
    assert place.says() == "two"


def test_a_call_under_way_keeps_the_settings_of_its_time(place, gate):
    place.write(
        f"{GATE}from onetool.sdk import get_config\nasync def told() -> list:\n    'Tell.'\n"
        "    first = get_config()['word']\n    await gate.pause()\n    return [first, get_config()['word']]\n",
        "packs/slowly.py",
    )
    place.write("settings: {slowly: {word: old}}\nstats: {enabled: false}\n")
    place.app.reload()

    async def both():
        running = asyncio.create_task(place.app.run("slowly.told()"))
        await gate.arrival()
        place.write("settings: {slowly: {word: new}}\nstats: {enabled: false}\n")
        await asyncio.to_thread(place.app.reload)
        gate.open()
        return (await running).value(), (await place.app.run("slowly.told()")).value()

    assert asyncio.run(both()) == (["old", "old"], ["new", "new"])


def test_a_refused_one_leaves_packages_whole(place):
    (place.folder / "packs" / "whole").mkdir()
    place.write(
        "def word() -> str:\n    'Say.'\n    from .part import WORD\n    return WORD\n", "packs/whole/__init__.py"
    )
    place.write("WORD = 'old'\n", "packs/whole/part.py")
    place.app.reload()
    assert asyncio.run(place.app.run("whole.word()")).value() == "old"
    place.write("WORD = 'new'\n", "packs/whole/part.py")
    place.write("from .part import WORD\ndef word() -> str:\n    'Say.'\n    return WORD\n", "packs/whole/__init__.py")
    place.write("def hello(:\n", "packs/zebra.py")  # what is new of the other has been imported when this is read
    with pytest.raises(ConfigError):
        place.app.reload()
    assert asyncio.run(place.app.run("whole.word()")).value() == "old"


def test_what_was_counted_before_is_seen_after(place):
    place.write("stats: {enabled: true}\n")
    place.app.reload()
    code = '[time.now(), ot.reload(), time.now(), ot.stats(tool="time.now")["total_calls"]][3]'
    assert asyncio.run(place.app.run(code)).value() == 2
    assert asyncio.run(place.app.run('ot.stats(tool="time.now")["total_calls"]')).value() == 2


def test_workers_stay_warm(place):
    place.says()
    before = _children()
    place.app.reload()
    place.says()
    assert _children() == before


def test_one_that_the_system_refuses_is_refused_for_all_who_asked(place):
    place.write(f"packs: [{'x' * 300}]\n")
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(place.app.reload) for _ in range(4)]
    assert [type(one.exception()) for one in asked] == [ConfigError] * 4
    assert "x" * 300 in str(place.app.health()["findings"])


def test_links_that_lead_in_circles_stop_nobody(place):
    (place.folder / "round").symlink_to(place.folder / "round")
    place.write("topics: [{pattern: x, file: round/x.yaml}]\naliases: {n: time.now}\nstats: {enabled: false}\n")
    place.app.reload()
    assert place.app.config.aliases == {"n": "time.now"}


def test_who_is_told_can_not_have_another_one(place):
    wrong = []

    def again():
        try:
            place.app.reload()
        except RuntimeError as error:
            wrong.append(str(error))

    place.app.on_change(again)
    place.app.reload()
    assert "this thread is already reloading" in wrong[0]
    place.app.reload()


def test_one_that_is_too_late_changes_nothing(place, monkeypatch):
    read, gate = Reloader.read, Checkpoint()

    def slowly(reloader, config, again=False):
        gate.pause_thread()
        return read(reloader, config, again=again)

    monkeypatch.setattr(Reloader, "read", slowly)
    monkeypatch.setattr("onetool.app.app.RELOAD_TIMEOUT", 0.1)  # for a reload that does not end
    place.write("aliases: {n: time.now}\nstats: {enabled: false}\n")
    reloading = threading.Thread(target=place.app.reload)
    reloading.start()
    assert gate.reached.wait(PATIENCE)
    place.app.close()
    gate.open()
    reloading.join(PATIENCE)
    assert place.app.config.aliases == {}


def test_a_run_under_way_masks_what_the_new_config_knows(place, gate):
    place.write(
        f"{GATE}from pathlib import Path\nasync def told() -> str:\n    'Tell.'\n"
        "    await gate.pause()\n    return Path(__file__).with_name('secret.txt').read_text()\n",
        "packs/slowly.py",
    )
    place.app.reload()

    async def both():
        running = asyncio.create_task(place.app.run("slowly.told()"))
        await gate.arrival()
        place.write("tok-0123456789abcdef", "packs/secret.txt")
        place.write("secrets: {NEW: tok-0123456789abcdef}\nstats: {enabled: false}\n")
        await asyncio.to_thread(place.app.reload)
        gate.open()
        return (await running).value()

    assert asyncio.run(both()) == "***"


def test_one_that_nobody_could_be_told_of_is_whole(place, caplog):
    told = []

    def fails():
        raise RuntimeError("I can't hear")

    place.app.on_change(fails)
    place.app.on_change(lambda: told.append(1))
    place.pack("two")
    place.app.reload()
    assert place.says() == "two"
    assert told
    assert "a listener for changed tools failed" in caplog.text


def test_a_config_that_comes_later_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ONETOOL_CONFIG", raising=False)
    with App.open() as app:
        assert app.config.path is None
        (tmp_path / ".onetool").mkdir()
        (tmp_path / ".onetool" / "onetool.yaml").write_text("aliases: {n: time.now}\nstats: {enabled: false}\n")
        app.reload()
        assert app.config.path == tmp_path / ".onetool" / "onetool.yaml"
        assert app.config.aliases == {"n": "time.now"}


def test_health_tells_that_it_failed_until_it_does_not(place):
    place.write("menus: run\n")
    with pytest.raises(ConfigError):
        place.app.reload()
    assert "menus" in str(place.app.health()["findings"])
    place.write("stats: {enabled: false}\n")
    place.app.reload()
    assert "findings" not in place.app.health()


def test_a_part_is_made_once_however_many_ask(place):
    with ThreadPoolExecutor(8) as threads:
        for part in ("engine", "executor", "stats", "results", "topics"):
            made = threads.map(lambda _, part=part: getattr(place.app.runtime, part), range(32))
            assert len({id(one) for one in made}) == 1


# By itself


@pytest.fixture
def quick(monkeypatch):
    """A look every 30 ms: nobody wants to wait for tests. Gives the watchers that there were, in a list."""
    from onetool.services import file_watcher

    watchers = []

    class Quick(file_watcher.FileWatcher):
        def __init__(self, *args, **options):
            self.looks = 0
            super().__init__(*args, **options)
            watchers.append(self)

        def _poll(self):
            snapshot = super()._poll()
            self.looks += 1
            return snapshot

    monkeypatch.setattr(file_watcher, "FileWatcher", Quick)
    monkeypatch.setattr("onetool.app.reload.POLL_S", 0.03)
    return watchers


def looks(watcher):
    """Wait for two whole looks: the first may have begun before."""
    before = watcher.looks
    until(lambda: watcher.looks > before + 1)


@pytest.mark.parametrize("how", ["config", "option"])
def test_files_that_change_are_read_again(place, quick, how, caplog):
    if how == "config":
        place.write("watch: true\nstats: {enabled: false}\n")
        place.app.reload()
    else:
        place.watch()
    place.app.connect()
    place.pack("two")
    until(lambda: place.says() == "two")
    place.pack("three", name="other")
    until(lambda: "other.hello" in place.app.catalog.registry)
    place.write("runs: x\n", "prompts.yaml")
    until(lambda: "the previous config stays in effect" in caplog.text)
    place.write("run: Go.\n", "prompts.yaml")
    until(lambda: place.app.config.texts.run == "Go.")


def test_a_file_that_stood_in_the_way_is_looked_at_too(place, quick):
    place.write("watch: true\nstats: {enabled: false}\n")
    place.app.reload()
    place.app.connect()
    place.write("alias: {}\n", "more.yaml")
    place.write("watch: true\nstats: {enabled: false}\ninclude: [more.yaml]\n")
    until(lambda: "more.yaml" in str(place.app.health().get("findings")))
    looks(quick[0])  # it looks at the file for the first time
    place.write("aliases: {n: time.now}\n", "more.yaml")
    until(lambda: place.app.config.aliases == {"n": "time.now"})


def test_it_ends_when_the_config_says_so(place, quick):
    place.write("watch: true\nstats: {enabled: false}\n")
    place.app.reload()
    place.app.connect()
    place.write("stats: {enabled: false}\n")
    until(lambda: not place.app.config.watch)
    quick[0]._thread.join(PATIENCE)
    assert not quick[0]._thread.is_alive()
    place.pack("two")
    assert place.says() == "one"


def test_what_changed_between_reading_and_looking_is_seen(place, quick):
    place.watch()
    place.pack("two")  # after it was read
    place.app.connect()
    until(lambda: place.says() == "two")


def test_nobody_watches_for_who_does_not_stay(place, quick):
    place.write("watch: true\nstats: {enabled: false}\n")
    place.app.reload()
    place.pack("two")
    assert quick == []
    assert place.says() == "one"


def test_who_serves_keeps_its_database_and_its_cluster(place):
    """Sessions, members and rates stay with the database that they began with: half of it would move."""
    onetool.asgi(place.app)
    before = place.state()
    key = "k" * 32
    place.write(f"database: postgresql://localhost/x\ncluster: {{key: {key}}}\n{TOOL}")
    with pytest.raises(ConfigError) as refused:
        place.app.reload()
    assert [(one.key, one.message) for one in refused.value.mistakes] == [
        ("database", "database can't change while the server runs: restart it"),
        ("cluster", "cluster can't change while the server runs: restart it"),
    ]
    assert place.state() == before
    assert place.app.reload_error is refused.value
    place.write(TOOL)  # anything else can
    place.app.reload()
    assert place.app.reload_error is None
