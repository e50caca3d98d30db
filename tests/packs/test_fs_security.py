"""Each case of tests/data/fs_security.json, as the test that has its id for a name. Each runs both ways of opening."""

import base64
import json
import os
import resource
import shutil
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import calls, examples, until

from onetool.packs import fs, shell
from onetool.sdk import ToolFailure
from onetool.services.file_access import open_folder, opening, private

pytestmark = [pytest.mark.attack("files"), pytest.mark.usefixtures("way")]

CASES = json.loads((Path(__file__).parents[1] / "data" / "fs_security.json").read_text())
NOBODY = 65534
HIDDEN = "words that nobody may see"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The allowed folder, which is the working folder, beside things that must stay unseen."""
    folder = tmp_path / "app"
    folder.mkdir()
    (tmp_path / "app-secret").mkdir()
    (tmp_path / "app-secret" / "x").write_text(HIDDEN)
    (tmp_path / "secret.txt").write_text(HIDDEN)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("crowd")
    for number in range(fs.MAX_ENTRIES + 2000):
        os.close(os.open(folder / f"{number:06d}", os.O_CREAT | os.O_WRONLY))
    yield folder
    shutil.rmtree(folder)  # pytest would keep it for three runs


def refusal(path: str, **options: object) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        fs.read_file(path, **options)  # pyright: ignore[reportArgumentType]
    assert HIDDEN not in str(caught.value)
    return caught.value


def list_refusal(path: str) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        fs.list_dir(path)
    return caught.value


def test_every_case_has_a_test() -> None:
    missing = [case["id"] for case in CASES if f"test_{case['id'].replace('-', '_')}" not in globals()]
    assert missing == []
    assert len(CASES) == 30


# Paths


def test_ok_plain(root: Path) -> None:
    (root / "a.txt").write_text("hi")
    assert fs.read_file("a.txt") == "hi"


def test_ok_percent_name(root: Path) -> None:
    (root / "100%25.txt").write_text("x")
    assert fs.read_file("100%25.txt") == "x"
    assert refusal("100%.txt").reason == "not_found"


def test_absolute_inside(root: Path) -> None:
    (root / "a.txt").write_text("hi")
    assert fs.read_file(f"{root}/a.txt") == "hi"


def test_dot(root: Path) -> None:
    failure = refusal(".")
    assert failure.reason == "is_a_directory"
    assert "is a directory" in str(failure)


def test_dotdot_deep(root: Path) -> None:
    assert refusal("a/../../../../etc/passwd").reason == "denied"
    (root / "a").mkdir()
    assert refusal("a/../../../../etc/passwd").reason == "denied"


def test_prefix_sibling(root: Path) -> None:
    assert refusal("../app-secret/x").reason == "denied"
    assert refusal(f"{root}-secret/x").reason == "denied"
    assert refusal(f"{root}/../app-secret/x").reason == "denied"


def test_proc_cwd(root: Path) -> None:
    assert refusal("/proc/self/cwd/../../etc/passwd").reason == "denied"
    assert refusal("/proc/self/cwd/a.txt").reason == "denied"


def test_env_var(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "x").write_text("found")
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("SECRET", "x")
    for path in ("$HOME/x", "${SECRET}", "$SECRET", "~/x", "%HOME%/x"):
        assert refusal(path).reason == "not_found"


def test_url(root: Path) -> None:
    assert refusal("file:///etc/passwd").reason == "not_found"
    assert refusal(f"file://{root}/a.txt").reason == "not_found"


def test_surrogate(root: Path) -> None:
    for path in ("\ud800", "a\udcff", "a/\udfff/b"):
        failure = refusal(path)
        assert failure.reason == "bad_path"
        str(failure).encode()


def test_name_256(root: Path) -> None:
    failure = refusal("a" * 256)
    assert failure.reason == "name_too_long"
    assert "ENAMETOOLONG" in str(failure)


# Links


def test_magic_link(root: Path) -> None:
    (root / "l").symlink_to("/proc/self/root/etc/passwd")
    assert refusal("l").reason == "denied"


def test_symlink_loop(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    failure = refusal("a")
    assert failure.reason == "link_loop"
    assert "ELOOP" in str(failure)


# What is not a regular file


def test_dev_zero(root: Path) -> None:
    (root / "z").symlink_to("/dev/zero")
    assert refusal("z").reason == "denied"
    assert refusal("/dev/zero").reason == "denied"


def test_dev_zero_as_a_node(root: Path) -> None:
    try:
        os.mknod(root / "z", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("may not make a device node")
    assert refusal("z").reason in ("not_a_file", "no_permission")  # the latter where the file system has nodev


def test_socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        failure = refusal("s")
    assert failure.reason == "not_a_file"
    assert "not a regular file" in str(failure)


# Sizes


@linux_only
def test_huge_sparse(root: Path) -> None:
    """An error and no first part: that a file over the limit is an error is what the tool promises."""
    (root / "h").touch()
    os.truncate(root / "h", 1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = refusal("h")
    assert failure.reason == "too_large"
    assert f"{1 << 40:,}" in str(failure)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_growing(root: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with open(root / "g", "ab", buffering=0) as file:
            for _ in range(20_000):
                file.write(b"x" * 4096)
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: (root / "g").exists() and (root / "g").stat().st_size > 204_800)
        assert refusal("g").reason == "too_large"
    finally:
        stop.set()
        writer.join()


def test_limit_huge(root: Path) -> None:
    (root / "a").write_text("hi")
    assert fs.read_file("a", maxBytes=10**18) == "hi"
    os.truncate(root / "a", fs.MAX_BYTES + 1)
    failure = refusal("a", maxBytes=10**18)
    assert failure.reason == "too_large"
    assert f"the limit is {fs.MAX_BYTES:,}" in str(failure)


# Text


def test_crlf(root: Path) -> None:
    (root / "c").write_bytes(b"a\r\nb\rc\n")
    assert fs.read_file("c") == "a\r\nb\rc\n"


def test_utf8_bom(root: Path) -> None:
    (root / "bom").write_bytes(b"\xef\xbb\xbftext")
    assert fs.read_file("bom") == "text"
    assert base64.b64decode(fs.read_file("bom", encoding="base64")) == b"\xef\xbb\xbftext"


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16(root: Path, codec: str) -> None:
    (root / "u16").write_bytes("text".encode(codec))
    failure = refusal("u16")
    assert failure.reason == "binary"
    assert 'encoding="base64"' in str(failure)


# Listing


def test_list_dotdot(root: Path) -> None:
    assert list_refusal("..").reason == "denied"


def test_list_symlink_out(root: Path) -> None:
    (root / "d").symlink_to("/etc")
    assert list_refusal("d").reason == "denied"
    assert fs.list_dir(".", recursive=True) == [{"path": "d", "type": "symlink", "size": None}]


def test_list_symlink_loop(root: Path) -> None:
    (root / "d").symlink_to(".")
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to("..")
    listed = fs.list_dir(".", recursive=True, maxDepth=10**9)
    assert [entry["path"] for entry in listed] == ["d", "sub", "sub/up"]


@pytest.mark.long
def test_list_huge(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(crowd)
    with calls(1_000_000):
        listed = fs.list_dir(".")
    assert [entry["path"] for entry in listed[:-1]] == [f"{number:06d}" for number in range(fs.MAX_ENTRIES)]
    assert listed[-1]["type"] == "truncated"
    assert "10,000" in listed[-1].get("note", "")


def test_list_odd_names(root: Path) -> None:
    names = ["new\nline", "\x1b[31mred", "\u202ertl", "<script>", "back\\slash", "\\xff", "\\x5c", "ünï"]
    odd = [name.encode() for name in names]
    if sys.platform == "linux":
        odd += [b"\xff", b"\xff\\xfe", b"\xed\xa0\x80"]
    for name in odd:
        Path(os.fsdecode(name)).write_bytes(base64.b64encode(name))
    listed = fs.list_dir(".")
    assert json.loads(json.dumps(listed, ensure_ascii=False).encode()) == listed
    assert len({entry["path"] for entry in listed}) == len(odd)
    assert {base64.b64decode(fs.read_file(entry["path"])) for entry in listed} == set(odd)


def test_list_unreadable(root: Path) -> None:
    (root / "open").mkdir()
    fs.list_dir(".")  # whoever drops to another user may no longer be able to import
    with unprivileged_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("onetool.sdk.get_config", lambda: {"roots": [str(folder)]})
        flat, deep = fs.list_dir("."), fs.list_dir(".", recursive=True)
        with pytest.raises(ToolFailure) as caught:
            fs.read_file("file")
    assert [entry["path"] for entry in flat] == ["closed", "file", "open"]
    assert "permission" in flat[0].get("error", "")
    assert "permission denied" in deep[0].get("error", "")
    assert not any("error" in entry for entry in [*flat[1:], *deep[1:]])
    assert caught.value.reason == "no_permission"


@contextmanager
def unprivileged_folder() -> Iterator[Path]:
    """A folder with things that its user may not open, as that user: nothing is closed to root."""
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are root's alone
    user = os.geteuid()
    try:
        for name in ("closed", "open"):
            (folder / name).mkdir()
        (folder / "file").touch()
        for name in ("closed", "file"):
            (folder / name).chmod(0)
        if user == 0:
            folder.chmod(0o755)
            os.seteuid(NOBODY)
        if not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
            pytest.skip("another user can't reach the folder for temporary files")
        yield folder
    finally:
        os.seteuid(user)
        (folder / "closed").chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.long
def test_list_vanish(root: Path) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        for _ in range(1000):
            for number in range(50):
                (root / f"d{number}").mkdir()
                (root / f"f{number}").touch()
            for number in range(50):
                (root / f"d{number}").rmdir()
                (root / f"f{number}").unlink()
            if stop.is_set():
                return

    worker = threading.Thread(target=come_and_go)
    worker.start()
    try:
        for _ in range(100):
            assert all(entry["size"] in (0, None) for entry in fs.list_dir(".", recursive=True))
    finally:
        stop.set()
        worker.join()


def test_list_vanish_of_a_folder_that_is_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    in_order = open_folder.sorted_entries

    def delete_first(folder: int, most: int) -> list[os.DirEntry[str]]:
        (root / "sub" / "deep").rmdir()
        return in_order(folder, most)

    def look(folder: int, most: int) -> list[os.DirEntry[str]]:
        found = in_order(folder, most)
        if [entry.name for entry in found] == ["deep"]:
            monkeypatch.setattr(open_folder, "sorted_entries", delete_first)
        return found

    monkeypatch.setattr(open_folder, "sorted_entries", look)
    assert [entry["path"] for entry in fs.list_dir(".", recursive=True)] == ["sub", "sub/deep"]


# The other pack that tells of folders


def test_pwd_args() -> None:
    with pytest.raises(TypeError):
        shell.pwd(x="; id")  # pyright: ignore[reportCallIssue]


def test_pwd_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ToolFailure, match="deleted"):
        shell.pwd()
    assert refusal("a.txt").reason == "root_missing"


# More of the same kind


def test_nul_and_empty(root: Path) -> None:
    for path in ("", "a\0b", "\0", "../\0"):
        assert refusal(path).reason == "bad_path"
        assert list_refusal(path).reason == "bad_path"


@pytest.mark.parametrize(
    "path", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/self/environ", "/", "//etc/passwd"]
)
def test_absolute_outside(root: Path, path: str) -> None:
    assert refusal(path).reason == "denied"
    assert list_refusal(path).reason == "denied"


@pytest.mark.parametrize("path", ["..", "../", "../app/a.txt", "./../app", "sub/../../app/a.txt", "sub/.././.."])
def test_dotdot_that_leaves_is_denied_even_if_it_comes_back(root: Path, path: str) -> None:
    (root / "sub").mkdir()
    (root / "a.txt").write_text("hi")
    assert refusal(path).reason == "denied"


def test_fifo_does_not_hang(root: Path) -> None:
    os.mkfifo(root / "p")
    rescue = threading.Timer(2, lambda: os.close(os.open(root / "p", os.O_RDWR)))
    rescue.start()
    assert refusal("p").reason == "not_a_file"
    rescue.cancel()
    assert fs.list_dir(".") == [{"path": "p", "type": "other", "size": None}]


@pytest.mark.parametrize(
    "target",
    [
        "../secret.txt",
        "/etc/passwd",
        "sub/../../secret.txt",
        "{root}/../secret.txt",
        "{root}-secret/x",
        "out/secret.txt",
    ],
)
def test_link_out(root: Path, target: str) -> None:
    (root / "sub").mkdir()
    (root / "out").symlink_to("..")
    (root / "l").symlink_to(target.format(root=root))
    assert refusal("l").reason == "denied"


def test_link_out_on_the_way(root: Path) -> None:
    (root / "out").symlink_to("..")
    (root / "abs").symlink_to(root.parent)
    for path in ("out/secret.txt", "out/app/../secret.txt", "abs/secret.txt", "out/nothing", "out/", "out/app"):
        assert refusal(path).reason == "denied"


def test_dotdot_behind_a_link_is_the_parent_of_where_it_leads(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "x").write_text("in a")
    (root / "l").symlink_to("a/b")
    assert fs.read_file("l/../x") == "in a"
    (root / "top").symlink_to(".")
    assert refusal("top/../secret.txt").reason == "denied"


@pytest.mark.parametrize("target", ["sub/a.txt", "{root}/sub/a.txt", "sub/../sub/./a.txt", "l2"])
def test_link_inside(root: Path, target: str) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "a.txt").write_text("hi")
    (root / "l2").symlink_to("sub/a.txt")
    (root / "l").symlink_to(target.format(root=root))
    (root / "sub" / "back").symlink_to(root / "l")
    assert fs.read_file("l") == "hi"
    assert fs.read_file("sub/back") == "hi"


def test_a_long_chain_of_links_inside(root: Path) -> None:
    (root / "0").write_text("hi")
    for number in range(45):
        (root / f"{number + 1}").symlink_to(f"{number}")
    assert fs.read_file("40") == "hi"
    assert refusal("41").reason == "link_loop"


def test_what_is_denied_does_not_tell_whether_it_exists(root: Path) -> None:
    (root / "yes").symlink_to("../secret.txt")
    (root / "no!").symlink_to("../missing.xx")
    for there, missing in (("../secret.txt", "../missing.xx"), ("yes", "no!")):
        assert str(refusal(there)).replace(there, "X") == str(refusal(missing)).replace(missing, "X")


@pytest.mark.long
@pytest.mark.longer
def test_a_folder_swapped_for_a_link_while_reading(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "secret.txt").write_text("fine")
    (root / "link").symlink_to(root.parent)
    stop = threading.Event()

    def swap() -> None:
        for _ in range(100_000):
            os.rename("d", "away")
            os.rename("link", "d")
            os.rename("d", "link")
            os.rename("away", "d")
            if stop.is_set():
                return

    worker = threading.Thread(target=swap)
    worker.start()
    answers: set[str] = set()
    try:
        for _ in range(examples(1000)):
            try:
                answers.add(fs.read_file("d/secret.txt"))
                answers.update(entry["path"] for entry in fs.list_dir("d"))
            except ToolFailure as failure:
                answers.add(str(failure.reason))
    finally:
        stop.set()
        worker.join()
    assert answers <= {"fine", "d/secret.txt", "denied", "not_found", "not_a_directory", "link_loop"}


def test_a_link_put_there_behind_the_walks_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same race, decided: when the walk looked there was no link, when it opens there is."""
    (root / "out").symlink_to("..")
    (root / "l").symlink_to("../secret.txt")
    monkeypatch.setattr(opening._Walk, "_link", lambda walk, name: None)
    for path in ("out/secret.txt", "l", "out/"):
        assert refusal(path).reason in ("link_loop", "not_a_directory")
    monkeypatch.setattr(open_folder, "_kind", lambda found: "directory")
    assert [entry["path"] for entry in fs.list_dir(".", recursive=True)] == ["l", "out"]


@linux_only
def test_a_size_of_zero_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of procfs are the ones at hand; they are closed otherwise."""
    monkeypatch.setattr("onetool.sdk.get_config", lambda: {"roots": [f"/proc/{os.getpid()}"]})
    monkeypatch.setattr(private, "closed_paths", tuple)
    monkeypatch.setattr(private, "SYSTEM", ())
    assert os.stat("/proc/self/status").st_size == 0
    assert refusal("status", maxBytes=10).reason == "too_large"
    assert fs.read_file("status").startswith("Name:")


@linux_only
def test_magic_links_below_a_root_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "closed_paths", tuple)  # they would be refused before they are followed
    monkeypatch.setattr(private, "SYSTEM", ())
    monkeypatch.setattr("onetool.sdk.get_config", lambda: {"roots": [f"/proc/{os.getpid()}"]})
    for path in ("root/etc/passwd", "cwd/", "exe", "fd/0"):
        assert refusal(path).reason in ("denied", "link_loop", "not_found")


@pytest.mark.parametrize("path", ["x/" * 2000 + "x", "../" * 1000, "d/../" * 700 + "a", "a" * 5000, "/" * 3000])
def test_endless_paths(root: Path, path: str) -> None:
    (root / "d").mkdir()
    with calls(200_000):
        refusal(path)


@pytest.mark.long
def test_nothing_stays_open(root: Path) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "up").symlink_to("..")
    (root / "out").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    (root / "bin").write_bytes(b"\0")
    wrong = [
        "missing",
        "sub/missing",
        "sub/deep/..",
        "sub/up/../x",
        "out/x",
        "loop",
        "bin",
        "fifo",
        "..",
        "sub/up/bin/x",
    ]
    refusal("missing")  # what is opened once and for all
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        for path in wrong:
            refusal(path)
        list_refusal("bin")
    fs.list_dir(".", recursive=True)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.long
@pytest.mark.longer
def test_many_threads_at_once(root: Path) -> None:
    for number in range(20):
        (root / f"f{number}").write_text(str(number))
    wrong: list[str] = []

    def read() -> None:
        for number in list(range(20)) * (examples(60) // 10):
            if fs.read_file(f"f{number}") != str(number):
                wrong.append(f"f{number}")

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
