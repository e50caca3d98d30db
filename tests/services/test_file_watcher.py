"""Changed files are told, once, when they have come to rest. Real files; nothing is measured by a clock."""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import until

from onetool.services import file_watcher as module
from onetool.services.file_watcher import FileWatcher

EVERY = 0.02
PATIENCE = 60  # seconds; only a failure takes so long


class Watched:
    """A lookout that counts: how often it has looked, and how often it has told."""

    def __init__(self, *paths: Path, tell: Callable[[], None] | None = None) -> None:
        self.paths = list(paths)
        self.looks = 0
        self.told = 0
        self._tell = tell
        self.lookout = FileWatcher(self._paths, self._told, every=EVERY)

    def _paths(self) -> list[Path]:
        self.looks += 1
        return list(self.paths)

    def _told(self) -> None:
        self.told += 1
        if self._tell:
            self._tell()

    def looks_again(self, times: int = 6) -> None:
        """Wait for some whole looks: long enough for whatever there is to be told."""
        enough = self.looks + times + 1
        until(lambda: self.looks >= enough)

    def tells(self, times: int) -> None:
        until(lambda: self.told >= times)
        self.looks_again()
        assert self.told == times


def put(file: Path, text: str) -> None:
    """In one step: a test that is held up halfway through writing must not be told twice."""
    draft = file.parent / ".draft"
    draft.write_text(text)
    draft.rename(file)


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(*paths: Path, tell: Callable[[], None] | None = None) -> Watched:
        made.append(Watched(*paths, tell=tell))
        return made[-1]

    yield start
    for watched in made:
        watched.lookout.close()


Watch = Callable[..., Watched]


# What is told


def test_a_changed_file_is_told_once(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "onetool.yaml"
    put(file, "a: 1")
    watched = watch(file)
    watched.looks_again()
    assert watched.told == 0
    put(file, "a: 22")
    watched.tells(1)
    put(file, "a: 333")
    watched.tells(2)


def test_a_change_right_after_the_start_is_told(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "onetool.yaml"
    watched = watch(file)
    put(file, "a: 1")
    watched.tells(1)


def test_files_that_come_go_and_move(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path)
    put(tmp_path / "a.py", "x = 1")
    watched.tells(1)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    watched.tells(2)
    (tmp_path / "b.py").unlink()
    watched.tells(3)


def test_the_same_size_and_time_but_another_file(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "a.yaml"
    put(file, "a: 1")
    os.utime(file, ns=(1, 1))
    watched = watch(file)
    put(tmp_path / "draft", "a: 2")
    os.utime(tmp_path / "draft", ns=(1, 1))
    (tmp_path / "draft").rename(file)
    watched.tells(1)


@pytest.mark.parametrize("name", ["a.py", "b.yaml", "c.yml", "d.json", "sub/deep/e.py", "link/f.py"])
def test_what_counts_in_a_folder(tmp_path: Path, watch: Watch, name: str) -> None:
    folder = tmp_path / ".onetool"  # a hidden one that was asked for
    (folder / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    watched = watch(folder)
    put(folder / name, "x")
    watched.tells(1)


def test_what_does_not_count(tmp_path: Path, watch: Watch) -> None:
    for folder in ("__pycache__", ".git", "sub/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    watched = watch(tmp_path)
    for name in (
        "__pycache__/a.py",
        ".git/a.yaml",
        "sub/__pycache__/a.py",
        ".#a.py",
        ".a.py",
        "a.txt",
        "a.py~",
        "a.pyc",
    ):
        put(tmp_path / name, "x")
    watched.looks_again()
    assert watched.told == 0
    put(tmp_path / "a.py", "x")
    watched.tells(1)


def test_a_file_that_is_asked_for_may_have_any_name(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path / ".env")
    put(tmp_path / ".env", "A=1")
    watched.tells(1)


# When it is told


class Steps:
    """Takes the clock's place: each look happens when the test says so, in the test's own thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
        self.told = 0
        self.paths: list[Path] = list(paths)
        monkeypatch.setattr(module.Thread, "start", lambda thread: None)
        self.lookout = FileWatcher(lambda: self.paths, self._tell)
        self._waits: list[bool] = []
        monkeypatch.setattr(self.lookout._closed, "wait", self._wait)
        self._before: list[Callable[[], object]] = []

    def _tell(self) -> None:
        self.told += 1

    def _wait(self, _: float) -> bool:
        if not self._before:
            return True
        self._before.pop(0)()
        return False

    def run(self, *before_each_look: Callable[[], object]) -> int:
        self._before = list(before_each_look)
        self.lookout._watch()
        return self.told


def nothing() -> None:
    pass


def test_it_waits_for_one_quiet_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.yaml"
    steps = Steps(monkeypatch, file)
    assert steps.run(lambda: file.write_text("1"), lambda: file.write_text("22"), lambda: file.write_text("333")) == 0
    steps = Steps(monkeypatch, file)
    assert steps.run(lambda: file.write_text("4444"), nothing, nothing, nothing) == 1


def test_a_file_that_is_away_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an editor replaces it: away, back as another one. It is told once, when it is back."""
    file = tmp_path / "a.yaml"
    file.write_text("1")
    there: list[bool] = []
    steps = Steps(monkeypatch, file)
    steps.lookout._on_change = lambda: there.append(file.exists())
    steps.run(lambda: file.rename(tmp_path / "a.yaml~"), lambda: file.write_text("22"), nothing, nothing)
    assert there == [True]


def test_what_is_again_as_it_was_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, away = tmp_path / "a.yaml", tmp_path / "away"
    file.write_text("1")
    assert Steps(monkeypatch, file).run(lambda: file.rename(away), lambda: away.rename(file), nothing, nothing) == 0


def test_one_that_never_rests_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow() -> None:
        with open(tmp_path / "log.json", "a") as file:
            file.write("x")

    assert Steps(monkeypatch, tmp_path).run(*[grow] * module.MAX_UNSETTLED) == 0
    assert Steps(monkeypatch, tmp_path).run(*[grow] * (module.MAX_UNSETTLED + 1)) == 1


def test_paths_that_are_new_are_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reload others may be looked at: they have just been read."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    for file in (first, second):
        file.write_text("1")
    steps = Steps(monkeypatch, first)
    assert steps.run(nothing, lambda: steps.paths.append(second), nothing, nothing) == 0
    assert steps.run(lambda: second.write_text("22"), nothing, nothing) == 1
    assert steps.run(lambda: steps.paths.remove(second), lambda: second.unlink(), nothing, nothing) == 1


def test_what_changes_while_it_is_told_is_told_again(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "a.yaml"

    def change_once() -> None:
        if watched.told == 1:
            put(file, "22")

    watched = watch(file, tell=change_once)
    put(file, "1")
    watched.tells(2)


# What goes wrong


def test_errors_of_those_who_are_told(tmp_path: Path, watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("not today")

    watched = watch(tmp_path, tell=fail)
    put(tmp_path / "a.py", "1")
    watched.tells(1)
    put(tmp_path / "b.py", "1")
    watched.tells(2)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the callback for changed files failed: ValueError: not today"] * 2
    assert not any(record.exc_info for record in caplog.records)


def test_paths_that_can_not_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.yaml"
    steps = Steps(monkeypatch, file)
    good = steps.lookout._paths

    def broken() -> list[Path]:
        raise RuntimeError("no config")

    def switch(paths: Callable[[], list[Path]]) -> None:
        steps.lookout._paths = paths

    steps.run(lambda: switch(broken), lambda: file.write_text("1"), nothing, lambda: switch(good), nothing)
    assert steps.told == 1
    said = [record.getMessage() for record in caplog.records]
    assert said == ["files can't be watched for now: RuntimeError: no config"]


def test_a_system_in_trouble_is_not_taken_for_files_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.py").write_text("1")

    def no_more_files(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    steps = Steps(monkeypatch, tmp_path)
    with monkeypatch.context() as patch:
        assert steps.run(lambda: patch.setattr(module.os, "scandir", no_more_files), nothing, nothing, nothing) == 0
    assert steps.run(nothing, nothing, nothing) == 0
    assert len(caplog.records) == 1


def test_odd_things_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "gone.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    steps = Steps(monkeypatch, tmp_path, tmp_path / "loop.py", tmp_path / "missing" / "x", tmp_path / "pipe.py" / "x")
    assert steps.run(nothing, nothing, nothing) == 0
    assert steps.run(lambda: (tmp_path / "sub" / "a.py").write_text("x"), nothing, nothing) == 1


def test_so_many_files_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 5)
    for number in range(20):
        (tmp_path / f"{number}.py").touch()
    steps = Steps(monkeypatch, tmp_path)
    assert len(steps.lookout._reported[tmp_path]) <= 6
    assert steps.run(nothing, nothing, nothing) == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "more than 5 files" in caplog.records[0].getMessage()


def test_so_deep_and_no_deeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DEPTH", 2)
    (tmp_path / "1" / "2").mkdir(parents=True)
    for folder in (".", "1", "1/2"):
        (tmp_path / folder / "a.py").touch()
    steps = Steps(monkeypatch, tmp_path)
    assert sorted(steps.lookout._reported[tmp_path]) == [str(tmp_path / "1" / "a.py"), str(tmp_path / "a.py")]


# The end


def is_alive(watched: Watched) -> bool:
    return watched.lookout._thread.is_alive()


def test_it_ends_and_tells_no_more(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path)
    watched.lookout.close()
    assert not is_alive(watched)
    looks = watched.looks
    put(tmp_path / "a.py", "x")
    watched.lookout.close()
    assert (watched.looks, watched.told) == (looks, 0)


def test_it_ends_at_once_however_seldom_it_looks(tmp_path: Path) -> None:
    lookout = FileWatcher(lambda: [tmp_path], nothing, every=3600)
    lookout.close()
    assert not lookout._thread.is_alive()


def test_it_is_ended_by_whoever_is_told(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path, tell=lambda: watched.lookout.close())
    put(tmp_path / "a.py", "x")
    until(lambda: not is_alive(watched))
    assert watched.told == 1


def test_it_does_not_wait_for_ever_for_whoever_is_told(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_WAIT", 0.05)
    go_on = threading.Event()
    watched = watch(tmp_path, tell=lambda: go_on.wait(PATIENCE) and None)
    put(tmp_path / "a.py", "x")
    until(lambda: watched.told == 1)
    watched.lookout.close()
    assert is_alive(watched)
    go_on.set()
    until(lambda: not is_alive(watched))


def test_nobody_has_to_wait_for_its_thread(tmp_path: Path, watch: Watch) -> None:
    assert watch(tmp_path).lookout._thread.daemon


def test_other_permissions_are_a_change(tmp_path: Path) -> None:
    """A config that others could write is read again after `chmod go-w`."""
    file = tmp_path / "onetool.yaml"
    file.write_text("menu: run\n")
    file.chmod(0o666)
    before = module.snapshot([file])
    file.chmod(0o600)
    assert module.snapshot([file]) != before
