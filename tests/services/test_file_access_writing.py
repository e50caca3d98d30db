"""Writing below allowed roots: what `services/file_access` promises, by both ways of opening the folder."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from onetool.services.file_access import PathRefusedError, Roots, open_folder, opening, private, why_not_written

pytestmark = pytest.mark.usefixtures("way")

NOBODY = 65534

Write = Callable[[Roots, str, bytes], None]


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(opening, "openat2", lambda: None)
    elif opening.openat2() is None:
        pytest.skip("no openat2 here")
    return request.param


@pytest.fixture(params=["write_file", "append"])
def write(request: pytest.FixtureRequest) -> Write:
    return getattr(Roots, request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The allowed folder, beside things that must stay as they are."""
    folder = tmp_path / "app"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("untouched")
    return folder


@pytest.fixture(autouse=True)
def outside_untouched(root: Path):
    yield
    assert sorted(path.name for path in (root.parent / "outside").iterdir()) == ["file"]
    assert (root.parent / "outside" / "file").read_text() == "untouched"


def roots(root: Path, *private: Path) -> Roots:
    return Roots([str(root)], [str(path) for path in private])


def refusal(write: Write, allowed: Roots, path: str) -> str:
    with pytest.raises(PathRefusedError) as caught:
        write(allowed, path, b"evil")
    words = why_not_written(caught.value, path, allowed.paths)
    assert words.encode()
    assert "{detail" not in words
    assert "{path" not in words
    return caught.value.reason


def drafts(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".onetool-*")]


# What is written


def test_a_file_is_made_replaced_and_added_to(root: Path) -> None:
    allowed = roots(root)
    allowed.write_file("a", b"one")
    allowed.write_file(f"{root}/a", b"two")
    allowed.append("a", b" three")
    allowed.append("sub/../sub/b", b"four")
    assert (root / "a").read_bytes() == b"two three"
    assert (root / "sub" / "b").read_bytes() == b"four"
    assert drafts(root) == []


def test_nothing_can_be_written_too(root: Path, write: Write) -> None:
    write(roots(root), "a", b"")
    assert (root / "a").read_bytes() == b""


def test_a_new_line_is_begun_only_where_it_is_needed(root: Path) -> None:
    allowed = roots(root)
    for data in (b"one", b"two\n", b"three\n"):
        allowed.append("a", data, on_new_line=True)
    assert (root / "a").read_bytes() == b"one\ntwo\nthree\n"


def test_a_file_keeps_its_permissions_and_a_new_one_has_the_usual(root: Path, write: Write) -> None:
    allowed = roots(root)
    (root / "a").touch()
    (root / "a").chmod(0o640)
    before = os.umask(0o027)
    try:
        write(allowed, "a", b"x")
        write(allowed, "b", b"x")
    finally:
        os.umask(before)
    assert (root / "a").stat().st_mode & 0o7777 == 0o640
    assert (root / "b").stat().st_mode & 0o7777 == 0o640


def test_replacing_is_another_file_and_readers_of_the_old_one_keep_it(root: Path) -> None:
    (root / "a").write_bytes(b"old")
    with open(root / "a", "rb") as reader:
        roots(root).write_file("a", b"new")
        assert reader.read() == b"old"
    assert (root / "a").read_bytes() == b"new"


def test_the_longest_names_work(root: Path, write: Write) -> None:
    write(roots(root), "n" * 255, b"x")
    assert (root / ("n" * 255)).read_bytes() == b"x"
    assert refusal(write, roots(root), "n" * 256) == "name_too_long"


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems know only UTF-8 names")
def test_names_that_are_not_utf8(root: Path, write: Write) -> None:
    odd = Path(os.fsdecode(bytes(root) + b"/\xff"))
    odd.write_bytes(b"")
    write(roots(root), "\\xff", b"x")
    assert odd.read_bytes() == b"x"
    write(roots(root), "\\xfe", b"y")
    assert Path(os.fsdecode(bytes(root) + b"/\xfe")).read_bytes() == b"y"
    (root / "\\xfd").write_bytes(b"")
    write(roots(root), "\\xfd", b"z")  # where a file has that very text for a name, it is meant
    assert (root / "\\xfd").read_bytes() == b"z"


def test_the_root_that_has_the_file_goes_before_the_first_that_could(root: Path, tmp_path: Path, write: Write) -> None:
    second = tmp_path / "second"
    (second / "only").mkdir(parents=True)
    (second / "there").write_bytes(b"")
    allowed = Roots([str(root), str(second), str(tmp_path / "missing")])
    for path in ("there", "only/new", "new"):
        write(allowed, path, b"x")
    assert (second / "there").read_bytes() == b"x"
    assert (second / "only" / "new").read_bytes() == b"x"
    assert (root / "new").read_bytes() == b"x"
    assert not (second / "new").exists()


def test_a_folder_may_be_reached_by_a_link_inside(root: Path, write: Write) -> None:
    (root / "relative").symlink_to("sub")
    (root / "absolute").symlink_to(root / "sub")
    write(roots(root), "relative/a", b"x")
    write(roots(root), "absolute/b", b"x")
    assert sorted(path.name for path in (root / "sub").iterdir()) == ["a", "b"]


# Ways out


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../outside/file", "denied"),
        ("../outside/new", "denied"),
        ("sub/../../outside/file", "denied"),
        ("{root}/../outside/file", "denied"),
        ("{root}/../app/../outside/new", "denied"),
        ("{outside}/file", "denied"),
        ("{outside}/new", "denied"),
        ("{root}-sibling", "denied"),
        ("/proc/self/cwd/x", "denied"),
        ("/dev/null", "denied"),
        ("..", "is_a_directory"),
        (".", "is_a_directory"),
        ("sub", "is_a_directory"),
        ("sub/", "is_a_directory"),
        ("sub/..", "is_a_directory"),
        ("{root}", "is_a_directory"),
        ("missing/x", "not_found"),
        ("file/x", "not_a_directory"),
        ("", "bad_path"),
        ("a\0b", "bad_path"),
        ("\ud800", "bad_path"),
        ("x/" * 2500, "name_too_long"),
        ("x/" * 2000 + "x", "not_found"),
    ],
)
def test_paths_that_are_refused(root: Path, write: Write, path: str, reason: str) -> None:
    (root / "file").write_bytes(b"as it was")
    found = refusal(write, roots(root), path.format(root=root, outside=root.parent / "outside"))
    assert found == ("denied" if path == ".." else reason)
    assert sorted(entry.name for entry in root.iterdir()) == ["file", "sub"]
    assert (root / "file").read_bytes() == b"as it was"


@pytest.mark.parametrize("path", ["~/x", "$HOME/x", "${HOME}/x", "file:///x"])
def test_nothing_is_expanded(root: Path, write: Write, path: str) -> None:
    assert refusal(write, roots(root), path) == "not_found"


@pytest.mark.parametrize("target", ["../outside/file", "../outside/new", "{outside}/file", "sub/new", "sub/there", "l"])
def test_a_link_is_neither_written_through_nor_replaced(root: Path, write: Write, target: str) -> None:
    (root / "sub" / "there").write_bytes(b"as it was")
    link = root / "l"
    link.symlink_to(target.format(outside=root.parent / "outside"))
    before = os.readlink(link)
    assert refusal(write, roots(root), "l") == "is_a_link"
    assert os.readlink(link) == before
    assert [path.name for path in (root / "sub").iterdir()] == ["there"]
    assert (root / "sub" / "there").read_bytes() == b"as it was"


def test_folders_that_lead_out(root: Path, write: Write) -> None:
    (root / "out").symlink_to("../outside")
    (root / "absolute").symlink_to(root.parent / "outside")
    (root / "loop").symlink_to("loop")
    for path in ("out/file", "out/new", "absolute/file", "absolute/new", "sub/../out/new", "out/../app/x"):
        assert refusal(write, roots(root), path) == "denied"
    assert refusal(write, roots(root), "loop/x") == "link_loop"


@pytest.mark.skipif(sys.platform != "linux", reason="needs procfs")
def test_magic_links_do_not_work(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(write, Roots([f"/proc/{os.getpid()}"]), "cwd/new") == "closed"
    monkeypatch.setattr(private, "closed_paths", tuple)  # what holds them off if procfs were open
    monkeypatch.setattr(private, "SYSTEM", ())
    here = os.open(root.parent / "outside", os.O_RDONLY)
    try:
        allowed = Roots([f"/proc/{os.getpid()}"])
        for path in (f"fd/{here}/new", "cwd/new", "root/tmp/new"):
            assert refusal(write, allowed, path) in ("denied", "link_loop", "not_found", "not_a_directory")
        assert refusal(write, allowed, f"fd/{here}") == "is_a_link"
    finally:
        os.close(here)


@pytest.mark.long
def test_a_folder_swapped_for_a_link_while_writing(root: Path, write: Write) -> None:
    (root / "d").mkdir()
    (root / "link").symlink_to("../outside")
    stop = threading.Event()

    def swap() -> None:
        os_root = str(root)
        while not stop.is_set():
            os.rename(f"{os_root}/d", f"{os_root}/away")
            os.rename(f"{os_root}/link", f"{os_root}/d")
            os.rename(f"{os_root}/d", f"{os_root}/link")
            os.rename(f"{os_root}/away", f"{os_root}/d")

    worker = threading.Thread(target=swap)
    worker.start()
    answers: set[str] = set()
    try:
        for _ in range(150):
            try:
                write(roots(root), "d/file", b"x")
                answers.add("ok")
            except PathRefusedError as refused:
                answers.add(refused.reason)
    finally:
        stop.set()
        worker.join()
    assert "ok" in answers
    assert answers <= {"ok", "denied", "not_found", "not_a_directory", "link_loop"}


@pytest.mark.long
def test_a_file_swapped_for_a_link_while_writing(root: Path, write: Write) -> None:
    """The file is a link at one moment and a file at another; what it leads to is never touched."""
    (root / "f").write_bytes(b"")
    (root / "link").symlink_to("../outside/file")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "link", root / "f")
            (root / "new").write_bytes(b"")
            os.rename(root / "new", root / "f")
            (root / "link").symlink_to("../outside/file")

    worker = threading.Thread(target=swap)
    worker.start()
    answers: set[str] = set()
    try:
        for _ in range(150):
            try:
                write(roots(root), "f", b"x")
                answers.add("ok")
            except PathRefusedError as refused:
                answers.add(refused.reason)
    finally:
        stop.set()
        worker.join()
    assert answers <= {"ok", "is_a_link", "link_loop", "busy"}
    assert drafts(root) == []


def test_a_link_put_there_behind_our_back(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same race, decided: when we looked there was nothing, when we open there is a link."""
    (root / "l").symlink_to("../outside/new")
    monkeypatch.setattr(open_folder, "_status", lambda folder, name: None)
    assert refusal(write, roots(root), "l") == "link_loop"


# What is not a regular file


def test_pipes_sockets_and_devices(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "pipe")
    (root / "zero").symlink_to("/dev/zero")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name in ("pipe", "socket"):
            assert refusal(write, roots(root), name) == "not_a_file"
    assert refusal(write, roots(root), "zero") == "is_a_link"
    assert refusal(write, Roots(["/dev"]), "zero") == "closed"
    monkeypatch.setattr(open_folder, "_status", lambda folder, name: None)  # put there a moment later
    for name in ("pipe", "socket"):
        assert refusal(write, roots(root), name) == "not_a_file"
    assert drafts(root) == []


# What is private


def test_private_files_by_whatever_name(root: Path, write: Write) -> None:
    secret = root / "secrets.yaml"
    secret.write_text("KEY: value")
    os.link(secret, root / "other")
    (root / "link").symlink_to("secrets.yaml")
    allowed = roots(root, secret)
    for path in ("secrets.yaml", "sub/../secrets.yaml", str(secret), "other", "Secrets.YAML"):
        assert refusal(write, allowed, path) == "private"
    assert refusal(write, allowed, "link") == "is_a_link"
    assert secret.read_text() == "KEY: value"
    write(allowed, "sub/secrets.yaml", b"fine")


def test_a_private_file_that_is_not_there_can_not_be_made(root: Path, write: Write) -> None:
    allowed = roots(root, root / "secrets.yaml", root / "missing" / "secrets.yaml")
    assert refusal(write, allowed, "secrets.yaml") == "private"
    write(allowed, "secrets.yml", b"fine")


def test_private_folders_with_all_that_is_in_them(root: Path, write: Write) -> None:
    (root / "state" / "deep").mkdir(parents=True)
    (root / "way in").symlink_to("state/deep")
    (root / "state" / "file").write_bytes(b"as it was")
    allowed = roots(root, root / "state")
    for path in ("state/file", "state/new", "state/deep/new", "way in/new", "way in/../file"):
        assert refusal(write, allowed, path) == "private"
    assert (root / "state" / "file").read_bytes() == b"as it was"


# Folders


def test_folders_on_the_way_are_made(root: Path) -> None:
    allowed = roots(root)
    for path in ("a/b/c/file", f"{root}/a/d/file", "file", "sub/file", "a/new/../file"):
        allowed.make_folders(path)
        allowed.append(path, b"x")
    assert (root / "a" / "b" / "c" / "file").exists()
    assert (root / "a" / "d" / "file").exists()


def test_folders_are_made_inside_only(root: Path) -> None:
    (root / "out").symlink_to("../outside")
    (root / "dangling").symlink_to("../outside/new")
    (root / "inside").symlink_to("nowhere")
    (root / "file").touch()
    allowed = roots(root, root / "state")
    for path, reason in {
        "out/a/file": "denied",
        "../a/file": "denied",
        "/a/file": "denied",
        "file/a/file": "not_a_directory",
        "inside/a/file": "not_found",
        "state/file": "private",
    }.items():
        with pytest.raises(PathRefusedError) as caught:
            allowed.make_folders(path)
        assert caught.value.reason == reason
    with pytest.raises(PathRefusedError):
        allowed.make_folders("dangling/a/file")
    assert not (root / "nowhere").exists()
    assert not (root / "state").exists()


# Failures


@pytest.fixture
def common_folder():
    """A folder for everybody, as another user where we are root: nothing is closed to root."""
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are root's alone
    user = os.geteuid()
    try:
        (folder / "a").write_bytes(b"as it was")
        (folder / "a").chmod(0o444)
        (folder / "closed").mkdir(mode=0o555)
        folder.chmod(0o777)
        if user == 0:
            os.seteuid(NOBODY)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            pytest.skip("another user can't reach the folder for temporary files")
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def test_permissions_that_say_no(common_folder: Path, write: Write) -> None:
    allowed = roots(common_folder)
    assert refusal(write, allowed, "a") == "no_permission"
    assert refusal(write, allowed, "closed/new") == "no_permission"
    assert (common_folder / "a").read_bytes() == b"as it was"
    write(allowed, "b", b"x")


CUT_OFF = """
import resource, sys
from onetool.services.file_access import PathRefusedError as Refused, Roots
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
write = getattr(Roots([sys.argv[1]]), sys.argv[2])
for path in ("a", "new"):
    try:
        write(path, b"x" * 10_000)
    except Refused as refused:
        print(refused)
write("a", b"!")
"""


@pytest.mark.parametrize(("write", "left"), [("write_file", b"!"), ("append", b"as it was!")])
def test_a_cut_off_write_is_undone(root: Path, write: str, left: bytes) -> None:
    """A real limit of the system, for a process of its own: the first part is written, the rest is not."""
    (root / "a").write_bytes(b"as it was")
    command = [sys.executable, "-c", CUT_OFF, str(root), write]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "not_writable: File too large\n" * 2
    assert (root / "a").read_bytes() == left
    assert drafts(root) == []
    assert not (root / "new").exists() or (root / "new").read_bytes() == b""


def test_a_full_disk(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")

    def full(*_: object) -> int:
        with open("/dev/full", "wb", buffering=0) as file:
            return file.write(b"x") or 0

    (root / "a").write_bytes(b"as it was")
    monkeypatch.setattr(open_folder.os, "write" if write is Roots.append else "fsync", full)
    with pytest.raises(PathRefusedError, match="No space left on device") as caught:
        write(roots(root), "a", b"x")
    assert why_not_written(caught.value, "a") == "'a' could not be written: No space left on device."
    assert (root / "a").read_bytes() == b"as it was"
    assert drafts(root) == []


def test_what_others_added_meanwhile_is_not_cut_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: int, data: bytes) -> int:
        with open(root / "a", "ab") as other:
            other.write(b"theirs")
        raise KeyboardInterrupt

    monkeypatch.setattr(open_folder.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        roots(root).append("a", b"ours")
    assert (root / "a").read_bytes() == b"theirs"


def test_a_lock_that_is_never_let_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_folder, "LOCK_TIMEOUT", 0.05)
    with open(root / "a", "wb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert refusal(Roots.append, roots(root), "a") == "busy"
    roots(root).append("a", b"now")
    assert (root / "a").read_bytes() == b"now"


def test_a_file_that_is_replaced_while_we_wait_for_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added goes to the file that has the name now, not to the one that is gone."""
    take, names = fcntl.flock, iter(["one", "two"])

    def replaced_first(file: int, how: int) -> None:
        if how & fcntl.LOCK_EX and (name := next(names, None)):
            (root / name).write_bytes(b"newer, ")
            os.rename(root / name, root / "a")
        take(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced_first)
    roots(root).append("a", b"ours")
    assert (root / "a").read_bytes() == b"newer, ours"


def test_nothing_stays_open(root: Path, write: Write) -> None:
    os.mkfifo(root / "pipe")
    (root / "l").symlink_to("a")
    (root / "out").symlink_to("..")
    allowed = roots(root, root / "secret")
    write(allowed, "a", b"")
    before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        write(allowed, "a", b"x")
        for path in ("pipe", "l", "out/x", "..", "missing/x", "secret", "sub", "n" * 256):
            refusal(write, allowed, path)
        allowed.make_folders("sub/a/b/c")
    assert len(os.listdir("/dev/fd")) == before


# Many at once

WRITER = """
import sys
from onetool.services.file_access import Roots
folder, number, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
roots = Roots([folder])
for turn in range(rounds):
    roots.append("log", (f"{number} {turn} " + number * 3000 + "\\n").encode())
    roots.write_file("whole", (number * 50000).encode())
"""


@pytest.mark.long
def test_writers_of_several_processes_do_not_mix(root: Path, way: str) -> None:
    if way == "walk":
        pytest.skip("the other processes open in their own way")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(number), "40"], stderr=subprocess.PIPE)
        for number in range(4)
    ]
    seen: set[bytes] = set()
    try:
        while any(writer.poll() is None for writer in writers):
            if (root / "whole").exists():
                seen.add((root / "whole").read_bytes())
    finally:
        errors = [writer.communicate(timeout=60)[1] for writer in writers]
    assert errors == [b""] * 4
    assert seen <= {str(number).encode() * 50000 for number in range(4)}
    lines = (root / "log").read_text().splitlines()
    expected = [f"{number} {turn} " + str(number) * 3000 for number in range(4) for turn in range(40)]
    assert sorted(lines) == sorted(expected)
    assert drafts(root) == []
