"""What `fs` gives, and what it says when it can't."""

import base64
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetool.packs import fs
from onetool.sdk import ToolFailure
from onetool.sdk.testing import packs
from onetool.services.file_access import opening

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "docs" / "deep" / "deeper").mkdir(parents=True)
    (folder / "a.txt").write_text("hello")
    (folder / "docs" / "guide.md").write_text("# Guide")
    (folder / "docs" / "deep" / "deeper" / "end").touch()
    (folder / "link").symlink_to("docs")
    monkeypatch.chdir(folder)
    return folder


def configure(monkeypatch: pytest.MonkeyPatch, roots: Any) -> None:
    monkeypatch.setattr("onetool.sdk.get_config", lambda: {"roots": roots})


def failure_of(function: Any, *args: Any, **options: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        function(*args, **options)
    return caught.value


def paths_of(listed: list[fs.Listed]) -> list[str]:
    return [entry["path"] for entry in listed]


# read_file


def test_reads_text(root: Path) -> None:
    assert fs.read_file("docs/guide.md") == "# Guide"
    assert fs.read_file("link/guide.md") == "# Guide"
    assert fs.read_file("docs/../a.txt") == "hello"
    assert fs.read_file("./docs//guide.md") == "# Guide"


def test_reads_an_empty_file(root: Path) -> None:
    assert fs.read_file("docs/deep/deeper/end") == ""


def test_reads_exactly_the_limit(root: Path) -> None:
    assert fs.read_file("a.txt", maxBytes=5) == "hello"


def test_over_the_limit_is_an_error_that_says_the_size_and_what_to_do(root: Path) -> None:
    failure = failure_of(fs.read_file, "a.txt", maxBytes=4)
    assert failure.reason == "too_large"
    assert str(failure) == "'a.txt' has 5 bytes; the limit is 4. Pass a larger maxBytes, up to 16,777,216."
    assert failure.hints == ()  # they would be printed below, and say the same


def test_what_no_limit_allows_says_so(root: Path) -> None:
    os.truncate("a.txt", 1 << 30)
    assert "can't" in str(failure_of(fs.read_file, "a.txt"))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_an_error(root: Path, limit: int) -> None:
    assert "maxBytes" in str(failure_of(fs.read_file, "a.txt", maxBytes=limit))


@pytest.mark.parametrize("data", [b"\x89PNG\r\n", b"a\0b", b"caf\xe9"])
def test_binary_is_an_error_but_for_base64(root: Path, data: bytes) -> None:
    (root / "data").write_bytes(data)
    failure = failure_of(fs.read_file, "data")
    assert failure.reason == "binary"
    assert 'encoding="base64"' in str(failure)
    assert base64.b64decode(fs.read_file("data", encoding="base64")) == data


def test_a_folder_is_not_read(root: Path) -> None:
    for path in ("docs", "docs/", "link", "link/."):
        assert failure_of(fs.read_file, path).reason == "is_a_directory"


def test_a_file_has_nothing_below_it(root: Path) -> None:
    for path in ("a.txt/", "a.txt/.", "a.txt/x", "a.txt/../a.txt"):
        assert failure_of(fs.read_file, path).reason == "not_a_directory"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("b.txt", "'b.txt' does not exist. Did you mean 'a.txt'?"),
        ("docs/guid.md", "no 'guid.md' in the folder 'docs'. Did you mean 'guide.md'?"),
        ("dosc/guide.md", "no 'dosc' in the folder '.'. Did you mean 'docs'?"),
        ("{root}/docs/guid.md", "no 'guid.md' in the folder '{root}/docs'. Did you mean 'guide.md'?"),
    ],
)
def test_not_found_offers_what_is_near(root: Path, path: str, message: str) -> None:
    failure = failure_of(fs.read_file, path.format(root=root))
    assert failure.reason == "not_found"
    assert message.format(root=root) in str(failure)


def test_not_found_without_anything_near(root: Path) -> None:
    failure = failure_of(fs.read_file, "docs/qqqqqqqq")
    assert str(failure) == "'docs/qqqqqqqq' does not exist."
    assert failure.hints == ("fs.list_dir(path='docs') lists the folder",)


def test_a_link_to_nothing(root: Path) -> None:
    (root / "stale").symlink_to("gone")
    failure = failure_of(fs.read_file, "stale")
    assert failure.reason == "not_found"
    assert "is a broken link" in str(failure)


def test_messages_hold_no_control_characters_and_no_long_paths(root: Path) -> None:
    assert "\x1b" not in str(failure_of(fs.read_file, "\x1b[31mred"))
    assert len(str(failure_of(fs.read_file, "x" * 5000))) < 500


# list_dir


def test_lists_a_folder(root: Path) -> None:
    (root / "B").touch()
    listed = fs.list_dir()
    assert listed == [
        {"path": "B", "type": "file", "size": 0},
        {"path": "a.txt", "type": "file", "size": 5},
        {"path": "docs", "type": "directory", "size": None},
        {"path": "link", "type": "symlink", "size": None},
    ]
    assert msgspec.convert(listed, list[fs.Listed]) == listed


def test_lists_all_levels_in_order(root: Path) -> None:
    assert paths_of(fs.list_dir(recursive=True)) == [
        "a.txt",
        "docs",
        "docs/deep",
        "docs/deep/deeper",
        "docs/deep/deeper/end",
        "docs/guide.md",
        "link",
    ]


@pytest.mark.parametrize(("levels", "deepest"), [(1, "docs"), (2, "docs/deep"), (3, "docs/deep/deeper")])
def test_stops_at_the_depth(root: Path, levels: int, deepest: str) -> None:
    folders = [entry["path"] for entry in fs.list_dir(recursive=True, maxDepth=levels) if entry["type"] == "directory"]
    assert folders[-1] == deepest


def test_depth_is_clamped_and_must_be_one_at_least(root: Path) -> None:
    deep = root / "docs"
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    listed = fs.list_dir("docs/d", recursive=True, maxDepth=10**9)
    assert len(listed) == fs.MAX_DEPTH
    assert "maxDepth" in str(failure_of(fs.list_dir, recursive=True, maxDepth=0))


@pytest.mark.parametrize("path", ["docs", "docs/", "./docs", "link", "{root}/docs", "docs/deep/.."])
def test_paths_of_a_list_can_be_handed_back(root: Path, path: str) -> None:
    listed = fs.list_dir(path.format(root=root))
    assert [os.path.basename(entry["path"]) for entry in listed] == ["deep", "guide.md"]
    assert fs.read_file(listed[1]["path"]) == "# Guide"
    assert paths_of(fs.list_dir(listed[0]["path"])) == [f"{listed[0]['path']}/deeper"]


def test_a_cut_list_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs, "MAX_ENTRIES", 3)
    listed = fs.list_dir(recursive=True)
    assert paths_of(listed) == ["a.txt", "docs", "docs/deep", "."]
    assert listed[-1]["type"] == "truncated"
    assert "first 3" in listed[-1].get("note", "")
    monkeypatch.setattr(fs, "MAX_ENTRIES", 7)
    assert len(fs.list_dir(recursive=True)) == 7


def test_a_file_can_not_be_listed(root: Path) -> None:
    failure = failure_of(fs.list_dir, "a.txt")
    assert failure.reason == "not_a_directory"
    assert "fs.read_file" in str(failure)


def test_a_missing_folder_offers_what_is_near(root: Path) -> None:
    failure = failure_of(fs.list_dir, "doc")
    assert failure.reason == "not_found"
    assert "'docs'" in str(failure)


# Roots


def test_denied_names_the_roots_and_the_setting(root: Path) -> None:
    failure = failure_of(fs.read_file, "/etc/passwd")
    assert failure.reason == "denied"
    assert str(root) in str(failure)
    assert "fs.roots" in str(failure)


def test_the_first_root_that_has_it(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "a.txt").write_text("other")
    (tmp_path / "second" / "b.txt").write_text("only here")
    configure(monkeypatch, [".", "../second"])
    assert fs.read_file("a.txt") == "hello"
    assert fs.read_file("b.txt") == "only here"
    assert fs.read_file(f"{tmp_path}/second/a.txt") == "other"
    assert fs.read_file("docs/guide.md") == "# Guide"
    assert failure_of(fs.read_file, "c.txt").reason == "not_found"
    assert failure_of(fs.read_file, "../second/a.txt").reason == "denied"


def test_roots_inside_of_each_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, ["docs", "."])
    assert fs.read_file(f"{root}/docs/guide.md") == "# Guide"
    assert fs.read_file(f"{root}/a.txt") == "hello"


def test_a_root_may_be_a_link(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, ["link"])
    (root / "docs" / "absolute").symlink_to(root / "docs" / "guide.md")
    assert fs.read_file("guide.md") == "# Guide"
    assert fs.read_file("absolute") == "# Guide"
    assert fs.read_file(f"{root}/link/guide.md") == "# Guide"
    assert fs.read_file(f"{root}/docs/guide.md") == "# Guide"
    assert failure_of(fs.read_file, f"{root}/a.txt").reason == "denied"


def test_relative_roots_follow_the_working_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "docs")
    assert fs.read_file("guide.md") == "# Guide"
    assert failure_of(fs.read_file, "../a.txt").reason == "denied"


def test_a_root_that_is_not_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, ["missing"])
    failure = failure_of(fs.list_dir)
    assert failure.reason == "root_missing"
    assert "missing" in str(failure)
    assert "fs.roots" in str(failure)
    configure(monkeypatch, ["missing", "docs"])
    assert fs.read_file("guide.md") == "# Guide"


def test_no_roots_allow_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, [])
    assert failure_of(fs.read_file, "a.txt").reason == "denied"
    assert failure_of(fs.list_dir).reason == "denied"


@pytest.mark.parametrize("roots", [5, [5], {"a": 1}, [""], "", None])
def test_roots_must_be_folders(root: Path, monkeypatch: pytest.MonkeyPatch, roots: Any) -> None:
    configure(monkeypatch, roots)
    assert failure_of(fs.read_file, "a.txt").reason == "bad_config"


def test_one_root_may_stand_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "docs")
    assert fs.read_file("guide.md") == "# Guide"


def test_roots_come_from_the_settings_of_the_call(root: Path) -> None:
    with packs(fs, settings={"fs": {"roots": ["docs"]}}) as tools:
        assert tools.call("fs.read_file", path="guide.md") == "# Guide"
        assert tools.result("fs.read_file", path="../a.txt").error.reason == "denied"  # pyright: ignore[reportOptionalMemberAccess]


# The system call


def test_a_kernel_without_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(folder: int, path: bytes, flags: int) -> int:
        raise OSError(38, "Function not implemented")

    assert opening._works(missing) is False


def test_other_systems_walk(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "walk":
        pytest.skip("the call is switched off in this way")
    monkeypatch.setattr("sys.platform", "darwin")
    assert opening.openat2.__wrapped__() is None
