"""The audit log: what a line says and does not say, rotation, retention, modes, and a disk that is full.

What lines say, and what becomes of them when they can't be written, is tested in files and in PostgreSQL.
"""

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from helpers import until
from hypothesis import given, settings
from hypothesis import strategies as st
from services.audit_places import Flaky, audit_database, empty_database, lines

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent
from onetool.core.os_files import OpenFolder
from onetool.core.principal import Principal, current_address, current_principal
from onetool.core.spec import ToolSpec
from onetool.services import audit
from onetool.services.audit import AuditLog, AuditUnavailableError, reader_of
from onetool.services.audit.files import AuditFiles
from onetool.services.audit.record import AuditFilter, AuditHasher, call_entry

__all__ = ["audit_database", "empty_database"]  # fixtures

NOON = 1_794_830_400.0  # 2026-11-16T12:00:00Z
CI = Principal(name="ci", owner="ci", role="call")
SPEC = ToolSpec(name="web.get", description="")


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def event(args: object = None, *, name: str = "web.get", spec: ToolSpec | None = SPEC, **more) -> CallEvent:
    call = ToolCall(more.pop("id", "c-1"), name, {} if args is None else args, "mcp")
    return CallEvent(call=call, spec=spec, duration_ms=1.5, principal=CI, address="10.0.0.7", **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit"


@pytest.fixture(params=["files", "postgres"])
def place(request, folder: Path):
    return folder if request.param == "files" else Flaky(request.getfixturevalue("empty_database"))


@pytest.fixture
def log(place):
    log = AuditLog(place, AuditConfig(), Clock())
    yield log
    log.close()


@pytest.fixture
def file_log(folder: Path):
    log = AuditLog(folder, AuditConfig(), Clock())
    yield log
    log.close()


# Lines


def test_a_call_is_one_line_with_who_where_what_and_how_it_went(log: AuditLog, place) -> None:
    log.record_call(event({"url": "https://example.com"}, client="Claude", run="r-9"))
    log.flush()
    (line,) = lines(place)
    assert len(line.pop("args")) == 16
    assert line == {
        "time": "2026-11-16T12:00:00.000Z",
        "kind": "call",
        "what": "web.get",
        "outcome": "ok",
        "who": "ci",
        "role": "call",
        "from": "10.0.0.7",
        "via": "mcp",
        "client": "Claude",
        "ms": 1.5,
        "id": "c-1",
        "run": "r-9",
    }


def test_what_is_empty_is_left_out(log: AuditLog, place) -> None:
    log.record("admin", "tokens add ci")
    log.flush()
    assert lines(place) == [
        {
            "time": "2026-11-16T12:00:00.000Z",
            "kind": "admin",
            "what": "tokens add ci",
            "outcome": "ok",
            "role": "admin",
        }
    ]


def test_the_principal_and_the_address_are_those_of_the_task(log: AuditLog, place) -> None:
    mine = current_principal.set(Principal(name="ann", owner="https://id|7", role="edit"))
    there = current_address.set("192.0.2.1")
    log.record("change", "PUT /tools/bundles/weather", status=201)
    current_principal.reset(mine)
    current_address.reset(there)
    log.flush()
    (line,) = lines(place)
    assert (line["who"], line["owner"], line["role"]) == ("ann", "https://id|7", "edit")
    assert (line["from"], line["status"]) == ("192.0.2.1", 201)


def test_the_owner_that_is_made_of_a_token_is_not_written(log: AuditLog, place) -> None:
    log.record("admin", "x", principal=Principal(name="http.token", owner="0123456789abcdef", shares_local_state=True))
    log.flush()
    (line,) = lines(place)
    assert line["who"] == "http.token"
    assert "owner" not in line


def test_two_long_names_never_become_one_and_each_is_found(log: AuditLog, place) -> None:
    names = [f"https://id.example.com|{'x' * 300}{end}" for end in "ab"]
    for name in names:
        log.record("admin", name[-1], principal=Principal(name=name, owner=name))
    log.flush()
    kept = [line["who"] for line in lines(place)]
    assert len(set(kept)) == 2
    for wanted in (names, kept):
        found = [reader_of(place).page(AuditFilter(who=one), 10).records for one in wanted]
        assert [[one.what for one in records] for records in found] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("error", "kind", "outcome", "reason"),
    [
        (ToolError(code="execution_error", message="m", reason="timeout"), "call", "execution_error", "timeout"),
        (ToolError(code="invalid_args", message="m"), "call", "invalid_args", None),
        (ToolError(code="tool_not_found", message="m", reason="denied"), "refusal", "tool_not_found", "denied"),
        (ToolError(code="execution_error", message="m", reason="hunter2"), "call", "execution_error", None),
    ],
)
def test_an_error_is_its_code_and_a_known_reason(
    log: AuditLog, place, error: ToolError, kind: str, outcome: str, reason: str | None
) -> None:
    log.record_call(event(error=error))
    log.flush()
    (line,) = lines(place)
    assert (line["kind"], line["outcome"], line.get("reason")) == (kind, outcome, reason)


def test_the_name_of_an_unknown_tool_is_not_written(log: AuditLog, place) -> None:
    missing = ToolError(code="tool_not_found", message="m")
    log.record_call(event(name="sk-live-4711", spec=None, error=missing))
    log.flush()
    (line,) = lines(place)
    assert line["what"].startswith("unknown tool ")
    assert "4711" not in json.dumps({**line, "args": ""}).replace(line["what"].split()[-1], "")


def test_hostile_names_stay_on_one_line_and_do_nothing_to_a_terminal(log: AuditLog, place) -> None:
    hostile = 'a\n{"kind":"admin"}\r\x1b[2J\u2028\x9b' + "x" * 10_000
    log.record_call(event(name=hostile, client=hostile, id=hostile))
    log.flush()
    ((kept, _),) = reader_of(place).lines()
    assert "\n" not in str(kept)
    assert len(kept) < 4096
    line = json.loads(kept)
    assert all(value.isprintable() for value in line.values() if isinstance(value, str))


def test_a_line_of_the_longest_parts_is_read_again(place) -> None:
    long = "\U0001f600" * 1000
    log = AuditLog(place, AuditConfig())
    who = Principal(name=long, owner=long + "x", role="admin")
    log.record("change", long, principal=who, via=long, client=long, id=long, run=long, outcome=long)
    log.close()
    assert len(reader_of(place).page(AuditFilter(), 10).records) == 1


# Hashes


def test_equal_arguments_have_equal_hashes_in_any_order_and_in_any_process(place) -> None:
    for args in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 2, "b": [2]}):
        log = AuditLog(place, AuditConfig(), Clock())
        log.record_call(event(args))
        log.close()
    first, second, third = (line["args"] for line in lines(place))
    assert first == second == reader_of(place).hash_of({"b": [2], "a": 1}) != third
    assert len(first) == 16


def test_another_folder_gives_other_hashes(tmp_path: Path) -> None:
    one, other = (AuditLog(tmp_path / name, AuditConfig()) for name in ("one", "other"))
    hashes = [log.reader.hash_of({"pin": "1234"}) for log in (one, other)]
    assert None not in hashes
    assert hashes[0] != hashes[1]


def test_without_a_key_there_is_no_hash_and_none_is_made(folder: Path) -> None:
    assert reader_of(folder).hash_of({}) is None
    assert not folder.exists()


@pytest.mark.parametrize("odd", ["\ud800", 10**400, object(), float("nan"), {1: 2}, {"x": {2, 3}}])
def test_what_has_no_form_in_json_is_hashed_or_left_out(log: AuditLog, place, odd: object) -> None:
    log.record_call(event({"odd": odd}))
    log.flush()
    assert len(lines(place)) == 1


def test_what_contains_itself_has_no_hash(log: AuditLog, place) -> None:
    loop: list = []
    loop.append(loop)
    log.record_call(event({"loop": loop}))
    log.flush()
    assert "args" not in lines(place)[0]


_texts = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=8, max_size=30)
_values = st.recursive(_texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3))


def _leaves(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in _leaves(part)]


@settings(max_examples=100, deadline=None)
@given(args=st.dictionaries(_texts, _values, min_size=1, max_size=4), fails=st.booleans(), known=st.booleans())
def test_no_value_of_any_argument_is_in_the_file(tmp_path_factory, args: dict, fails: bool, known: bool) -> None:
    folder = tmp_path_factory.mktemp("property") / "audit"
    some = _leaves(args)[0]
    error = ToolError(code="execution_error", message=some, reason=some) if fails else None
    log = AuditLog(folder, AuditConfig(), Clock())
    name, spec = ("web.get", SPEC) if known else (some, None)
    log.record_call(event(args, name=name, spec=spec, error=error, value=args))
    log.close()
    written = next(folder.glob("*.jsonl")).read_text()
    nothing = event({}, spec=spec, error=ToolError(code="execution_error", message="") if fails else None)
    own_words = call_entry(nothing, NOON, AuditHasher(None)).line().decode()
    for leaf in _leaves(args):
        assert leaf not in written or leaf in own_words  # such as a part of "execution_error"


# Files


def test_only_the_owner_can_read_it(file_log: AuditLog, folder: Path) -> None:
    file_log.record("admin", "x")
    file_log.flush()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        if file.name != ".gitignore":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_what_git_ignores_is_written_once_with_the_folder(file_log: AuditLog, folder: Path, monkeypatch) -> None:
    file_log.record("admin", "x")
    file_log.flush()
    assert (folder / ".gitignore").read_text() == "*\n"
    opened, real = [], OpenFolder.open
    monkeypatch.setattr(OpenFolder, "open", lambda self, name, *more: (opened.append(name), real(self, name, *more))[1])
    file_log.record("admin", "y")
    file_log.flush()
    assert opened
    assert ".gitignore" not in opened


def test_modes_that_let_others_in_are_put_right(file_log: AuditLog, folder: Path) -> None:
    file_log.record("admin", "x")
    file_log.flush()
    (file,) = folder.glob("*.jsonl")
    folder.chmod(0o755)
    file.chmod(0o644)
    file_log.record("admin", "y")
    file_log.flush()
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)


def test_a_full_file_and_another_day_begin_a_new_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    log = AuditLog(folder, AuditConfig(max_mb=1), clock)
    for number in range(9000):
        log.record("admin", f"{number} " + "x" * 200)
        if number % 3000 == 2999:
            log.flush()
    clock.now += 86_400
    log.record("admin", "the next day")
    log.close()
    names = sorted(file.name for file in folder.glob("*.jsonl"))
    assert names[-1].startswith("2026-11-17T")
    assert len(names) >= 3
    assert all(file.stat().st_size < 1.1 * 1024**2 for file in folder.glob("*.jsonl"))
    assert [line["what"].split()[0] for line in lines(folder)] == [*map(str, range(9000)), "the"]


def test_a_clock_that_was_put_back_does_not_mix_up_the_order_of_files(folder: Path) -> None:
    clock = Clock()
    files = AuditFiles(folder, AuditConfig(), clock)
    files.append([b"{}\n"])
    clock.now -= 3 * 86_400
    files.append([b"{}\n"])
    assert len(list(folder.glob("*.jsonl"))) == 1


def test_old_files_are_removed_and_others_stay(folder: Path) -> None:
    clock = Clock()
    for day in range(5):
        clock.now = NOON + day * 86_400
        log = AuditLog(folder, AuditConfig(retention_days=2), clock)
        log.record("admin", f"day {day}")
        log.close()
    (folder / "2020-01-01.txt").write_text("not ours")
    clock.now = NOON + 5 * 86_400
    log = AuditLog(folder, AuditConfig(retention_days=2), clock)
    log.record("admin", "day 5")
    log.close()
    assert [line["what"] for line in lines(folder)] == ["day 3", "day 4", "day 5"]
    assert (folder / "2020-01-01.txt").exists()


@pytest.mark.parametrize("part", ["folder", "file", "key"])
def test_nothing_is_written_through_a_link(folder: Path, tmp_path: Path, part: str) -> None:
    other = tmp_path / "other"
    folder.parent.mkdir()
    if part == "folder":
        other.mkdir()
        folder.symlink_to(other)
    else:
        other.write_text("")
        folder.mkdir()
        name = "key" if part == "key" else "2026-11-16T115959.000Z.jsonl"
        (folder / name).symlink_to(other)
    log = AuditLog(folder, AuditConfig(mode="required"), Clock())
    if part != "key":
        with pytest.raises(AuditUnavailableError, match="can't be written"):
            log.write("admin", "x")
    else:
        log.record_call(event())
        log.flush()
        assert "args" not in lines(folder)[0]
    log.close()
    assert (list(other.iterdir()) == []) if part == "folder" else (other.read_text() == "")


def test_a_torn_line_does_not_spoil_the_next_one(file_log: AuditLog, folder: Path) -> None:
    file_log.record("admin", "one")
    file_log.flush()
    (file,) = folder.glob("*.jsonl")
    with file.open("a") as stream:
        stream.write('{"time":"2026-11-16T12:0')
    file_log.record("admin", "two")
    file_log.flush()
    whats = [json.loads(line)["what"] for line in file.read_text().splitlines() if line.endswith("}")]
    assert whats == ["one", "two"]


def test_a_folder_that_was_removed_is_made_again(file_log: AuditLog, folder: Path) -> None:
    import shutil

    file_log.record("admin", "one")
    file_log.flush()
    shutil.rmtree(folder)
    file_log.record("admin", "two")
    file_log.flush()
    assert [line["what"] for line in lines(folder)] == ["two"]


# A log that can't be written


class FullDisk:
    """Lets through so many bytes, as a disk does that becomes full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int = 0) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, file: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        done = self._write(file, data[: self.room])
        self.room -= done
        return done


def test_lines_wait_while_the_disk_is_full_and_no_half_line_stays(
    file_log: AuditLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_log.record("admin", "one")
    file_log.flush()
    disk = FullDisk(monkeypatch, room=150)
    for name in ("two", "three", "four"):
        file_log.record("admin", name)
    file_log.flush()
    assert file_log.problem == "No space left on device"
    assert [line["what"] for line in lines(folder)] == ["one", "two"]
    disk.room = 10**9
    file_log.flush()
    assert file_log.problem is None
    assert [line["what"] for line in lines(folder)] == ["one", "two", "three", "four"]
    assert file_log.lost == 0


@pytest.fixture
def stop(place, monkeypatch: pytest.MonkeyPatch):
    """Call it: the log can't be written from then on. What it gives ends that."""

    def stop_files():
        disk = FullDisk(monkeypatch)
        return lambda: setattr(disk, "room", 10**9)

    def stop_database():
        place.is_away = True
        return lambda: setattr(place, "is_away", False)

    return stop_files if isinstance(place, Path) else stop_database


def why(place) -> str:
    return "No space left on device" if isinstance(place, Path) else "the database can't be reached"


def test_lines_wait_while_they_cant_be_written(log: AuditLog, place, stop) -> None:
    log.record("admin", "one")
    log.flush()
    go_on = stop()
    for name in ("two", "three"):
        log.record("admin", name)
    log.flush()
    assert log.problem == why(place)
    go_on()
    log.flush()
    assert log.problem is None
    assert [line["what"] for line in lines(place)] == ["one", "two", "three"]
    assert log.lost == 0


def test_lines_are_written_by_themselves_when_they_can_be_again(place, stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RETRY_S", 0.05)
    log = AuditLog(place, AuditConfig())
    go_on = stop()
    log.record("admin", "one")
    until(lambda: log.problem == why(place))
    go_on()
    until(lambda: log.problem is None)
    assert [line["what"] for line in lines(place)] == ["one"]
    log.close()


def test_lost_lines_are_counted_and_told_once_and_a_line_says_how_many(
    log: AuditLog, place, stop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log.flush()
    go_on = stop()
    monkeypatch.setattr(audit, "MOST_WAITING", 5)
    for number in range(8):
        log.record("admin", f"{number}")
        log.flush()
    assert log.lost == 3
    assert sum("can't be written" in one.message for one in caplog.records) == 1
    go_on()
    log.flush()
    assert [line["what"] for line in lines(place)] == ["0", "1", "2", "3", "4", "3 lines lost"]
    assert lines(place)[-1]["kind"] == "gap"
    log.record("admin", "later")
    log.flush()
    assert lines(place)[-1]["what"] == "later"


def test_where_it_is_required_a_line_is_kept_or_an_error_is_raised(place, stop) -> None:
    log = AuditLog(place, AuditConfig(mode="required"), Clock())
    log.write("call", "web.get")
    assert [line["what"] for line in lines(place)] == ["web.get"]
    go_on = stop()
    with pytest.raises(AuditUnavailableError, match=why(place)) as caught:
        log.write("call", "web.get")
    assert caught.value.reason == "audit_unavailable"
    assert "10.0.0.9" not in str(caught.value)  # callers read it
    go_on()
    log.write("call", "again")
    assert [line["what"] for line in lines(place)] == ["web.get", "again"]
    log.close()


def test_a_real_full_disk_takes_whole_lines_alone(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel write a part of the last line, as a full disk does."""
    import subprocess
    import sys

    code = f"""
import resource, signal
from pathlib import Path
from onetool.config.model import AuditConfig
from onetool.services.audit import AuditLog
log = AuditLog(Path({str(tmp_path / "audit")!r}), AuditConfig())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for number in range(100):
    log.record("admin", f"{{number}}")
log.flush()
print(log.problem)
import os
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.strip() != "None"
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    data = file.read_bytes()
    assert 800 < len(data) <= 1000
    assert data.endswith(b"}\n")
    assert [line["what"] for line in lines(tmp_path / "audit")] == [str(n) for n in range(data.count(b"\n"))]


def test_it_is_written_without_being_asked_within_a_moment_and_at_the_end(place) -> None:
    log = AuditLog(place, AuditConfig())
    log.record("admin", "soon")
    until(lambda: lines(place))
    assert [line["what"] for line in lines(place)] == ["soon"]
    log.record("admin", "at the end")
    log.close()
    assert lines(place)[-1]["what"] == "at the end"


def test_the_settings_are_those_of_the_config() -> None:
    assert msgspec.structs.asdict(AuditConfig()) == {"mode": "usual", "retention_days": 90, "max_mb": 64}
