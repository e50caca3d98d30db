"""A file is replaced as a whole or not at all, and a lock is waited for only so long."""

import os
import stat
from pathlib import Path

import pytest

from onetool.core import flock
from onetool.core.os_files import draft_of, replace_file


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    replace_file(file, b"first")
    replace_file(file, b"second")
    assert file.read_bytes() == b"second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_draft_that_is_not_moved_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    replace_file(file, b"first")
    with draft_of(file, b"second") as draft:
        assert draft.read_bytes() == b"second"
    assert file.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "state.json").symlink_to("other")
    replace_file(tmp_path / "state.json", b"ours")
    assert (tmp_path / "other").read_bytes() == b"theirs"


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_a_lock_is_waited_for_so_long(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = flock.take_path(path, opened, 0)
    assert first is not None
    assert flock.take_path(path, opened, 0.02) is None
    flock.give_back(first)
    second = flock.take_path(path, opened, 0)
    assert second is not None
    flock.give_back(second)


def test_the_lock_of_another_file_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had it before may have deleted it in the moment before we got it."""
    path, take, taken = tmp_path / "lock", flock.take, []

    def deleted_first(file: int) -> bool:
        if not taken:
            path.unlink()
        taken.append(file)
        return take(file)

    monkeypatch.setattr(flock, "take", deleted_first)
    file = flock.take_path(path, opened, 10)
    assert file is not None
    assert len(taken) == 2
    assert flock.leads_to(path, file)
    flock.give_back(file)
