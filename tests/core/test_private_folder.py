"""A private folder: made when it is needed, for its owner alone, ignored by git, never through a link, and locked."""

import stat

import pytest

from onetool.core.flock import LOCK, locked_folder
from onetool.core.os_files import HAS_OWNERS
from onetool.core.state_folders import IGNORE, MARKER


def test_it_is_made_with_what_git_ignores(tmp_path):
    folder = tmp_path / "state" / "things"
    with locked_folder(folder, 1.0) as opened:
        assert sorted(opened.names()) == [IGNORE, LOCK, MARKER]
    assert (folder / IGNORE).read_text() == "*\n"


def test_one_that_was_not_finished_is_finished(tmp_path):
    (tmp_path / "things").mkdir()
    with locked_folder(tmp_path / "things", 1.0) as opened:
        assert IGNORE in opened.names()


@pytest.mark.skipif(not HAS_OWNERS, reason="no modes and owners")
def test_others_are_locked_out(tmp_path):
    folder = tmp_path / "things"
    folder.mkdir(mode=0o755)
    with locked_folder(folder, 1.0):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_is_refused_and_nothing_is_made_behind_it(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "things").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="a link, which state is not"), locked_folder(tmp_path / "things", 1.0):
        pytest.fail("it must not be opened")
    assert [*(tmp_path / "other").iterdir()] == []


def test_who_waits_too_long_is_told(tmp_path):
    with (
        locked_folder(tmp_path / "things", 1.0),
        pytest.raises(TimeoutError, match="another process holds its lock"),
        locked_folder(tmp_path / "things", 0.05),
    ):
        pytest.fail("two hold it at once")
