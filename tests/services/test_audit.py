"""The audit log: what a line says and does not say, modes, and a database that is away or full."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from helpers import examples, until
from hypothesis import given, settings
from hypothesis import strategies as st
from services.journals import Audited, Flaky, audit_database, empty_database, lines, lines_in

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent
from onetool.core.principal import Principal, current_address, current_principal
from onetool.core.spec import ToolSpec
from onetool.database.sqlite import SqliteDatabase
from onetool.services import journal
from onetool.services.journal import AuditUnavailableError
from onetool.services.journal.audit import AuditFilter, AuditLog
from onetool.services.journal.row import REASONS, ArgumentHasher, RowMaker

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
    return CallEvent.of(call=call, spec=spec, duration_ms=1.5, principal=CI, address="10.0.0.7", **more)


@pytest.fixture
def place(tmp_path: Path):
    found = Flaky(SqliteDatabase(tmp_path / "state.db"))
    yield found
    found.close()


@pytest.fixture(params=["sqlite", "postgres"])
def either(request):
    """For what the two databases could do differently."""
    return (
        request.getfixturevalue("place")
        if request.param == "sqlite"
        else Flaky(request.getfixturevalue("empty_database"))
    )


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory):
    return SqliteDatabase(tmp_path_factory.mktemp("property") / "state.db")


@pytest.fixture
def log(place):
    log = Audited(place, AuditConfig(), Clock())
    yield log
    log.close()


# Lines


def test_a_call_is_one_line_with_who_where_what_and_how_it_went(log: Audited, place) -> None:
    log.record(event({"url": "https://example.com"}, client="Claude", run="r-9"))
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


def test_what_is_empty_is_left_out(log: Audited, place) -> None:
    log.note("admin", "tokens add ci")
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


def test_the_principal_and_the_address_are_those_of_the_task(log: Audited, place) -> None:
    mine = current_principal.set(Principal(name="ann", owner="https://id|7", role="edit"))
    there = current_address.set("192.0.2.1")
    log.note("change", "PUT /tools/bundles/weather", status=201)
    current_principal.reset(mine)
    current_address.reset(there)
    log.flush()
    (line,) = lines(place)
    assert (line["who"], line["owner"], line["role"]) == ("ann", "https://id|7", "edit")
    assert (line["from"], line["status"]) == ("192.0.2.1", 201)


def test_the_owner_that_is_made_of_a_token_is_not_written(log: Audited, place) -> None:
    log.note("admin", "x", principal=Principal(name="http.token", owner="0123456789abcdef", shares_local_state=True))
    log.flush()
    (line,) = lines(place)
    assert line["who"] == "http.token"
    assert "owner" not in line


def test_two_long_names_never_become_one_and_each_is_found(log: Audited, place) -> None:
    names = [f"https://id.example.com|{'x' * 300}{end}" for end in "ab"]
    for name in names:
        log.note("admin", name[-1], principal=Principal(name=name, owner=name))
    log.flush()
    kept = [line["who"] for line in lines(place)]
    assert len(set(kept)) == 2
    for wanted in (names, kept):
        found = [AuditLog(place).page(AuditFilter(who=one), 10).records for one in wanted]
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
    log: Audited, place, error: ToolError, kind: str, outcome: str, reason: str | None
) -> None:
    log.record(event(error=error))
    log.flush()
    (line,) = lines(place)
    assert (line["kind"], line["outcome"], line.get("reason")) == (kind, outcome, reason)


def test_the_name_of_an_unknown_tool_is_not_written(log: Audited, place) -> None:
    missing = ToolError(code="tool_not_found", message="m")
    log.record(event(name="sk-live-4711", spec=None, error=missing))
    log.flush()
    (line,) = lines(place)
    assert line["what"].startswith("unknown tool ")
    assert "4711" not in json.dumps({**line, "args": ""}).replace(line["what"].split()[-1], "")


@pytest.mark.attack("event queue")
def test_hostile_names_are_short_and_do_nothing_to_a_terminal(log: Audited, place) -> None:
    hostile = 'a\n{"kind":"admin"}\r\x1b[2J\u2028\x9b' + "x" * 10_000
    log.record(event(name=hostile, client=hostile, id=hostile))
    log.flush()
    (line,) = lines(place)
    assert len(json.dumps(line)) < 4096
    assert all(value.isprintable() for value in line.values() if isinstance(value, str))


def test_a_line_of_the_longest_parts_is_read_again(place) -> None:
    long = "\U0001f600" * 1000
    log = Audited(place, AuditConfig())
    who = Principal(name=long, owner=long + "x", role="admin")
    log.note("change", long, principal=who, via=long, client=long, id=long, run=long, outcome=long)
    log.close()
    assert len(AuditLog(place).page(AuditFilter(), 10).records) == 1


# Hashes


def test_equal_arguments_have_equal_hashes_in_any_order_and_in_any_process(either) -> None:
    for args in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 2, "b": [2]}):
        log = Audited(either, AuditConfig(), Clock())
        log.record(event(args))
        log.close()
    first, second, third = (line["args"] for line in lines(either))
    assert first == second == AuditLog(either).hash_of({"b": [2], "a": 1}) != third
    assert len(first) == 16


def test_another_database_gives_other_hashes(tmp_path: Path) -> None:
    databases = [SqliteDatabase(tmp_path / name) for name in ("one.db", "other.db")]
    hashes = [Audited(database, AuditConfig()).log.hash_of({"pin": "1234"}) for database in databases]
    assert hashes[0] != hashes[1]


def test_looking_for_arguments_makes_no_database(tmp_path: Path) -> None:
    AuditLog(SqliteDatabase(tmp_path / "state.db", makes_folder=True)).hash_of({})
    assert list(tmp_path.iterdir()) == []


def test_after_a_new_database_hashes_are_those_of_its_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "state.db"
    log = Audited(SqliteDatabase(file), AuditConfig())
    log.record(event({"pin": 1}))
    log.flush()
    for one in tmp_path.glob("state.db*"):
        one.unlink()
    file.write_bytes(b"damaged" * 1000)
    file.chmod(0o600)
    log.note("admin", "waits")
    log.flush()
    assert "the journal can't be written: state.db is damaged" in caplog.text
    file.unlink()
    log.flush()
    log.record(event({"pin": 1}))
    log.close()
    found = lines_in(tmp_path)
    assert [line["what"] for line in found] == ["waits", "web.get"]
    assert found[1]["args"] == AuditLog(SqliteDatabase(file)).hash_of({"pin": 1})


@pytest.mark.attack("event queue")
@pytest.mark.parametrize("odd", ["\ud800", 10**400, object(), float("nan"), {1: 2}, {"x": {2, 3}}])
def test_what_has_no_form_in_json_is_hashed_or_left_out(log: Audited, place, odd: object) -> None:
    log.record(event({"odd": odd}))
    log.flush()
    assert len(lines(place)) == 1


@pytest.mark.attack("event queue")
def test_what_contains_itself_has_no_hash(log: Audited, place) -> None:
    loop: list = []
    loop.append(loop)
    log.record(event({"loop": loop}))
    log.flush()
    assert "args" not in lines(place)[0]


_texts = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=8, max_size=30)
_values = st.recursive(_texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3))


def _leaves(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in _leaves(part)]


@settings(max_examples=examples(100), deadline=None)
@given(args=st.dictionaries(_texts, _values, min_size=1, max_size=4), fails=st.booleans(), known=st.booleans())
def test_no_value_of_any_argument_is_in_the_log(shared_file, args: dict, fails: bool, known: bool) -> None:
    some = _leaves(args)[0]
    error = ToolError(code="execution_error", message=some, reason=some) if fails else None
    shared_file.write(lambda work: work.execute("DELETE FROM events"))
    log = Audited(shared_file, AuditConfig(), Clock())
    log.set_config(msgspec.structs.replace(log.settings, counts=False))  # the stats name unknown tools
    name, spec = ("web.get", SPEC) if known else (some, None)
    log.record(event(args, name=name, spec=spec, error=error, value=args))
    log.close()
    [written] = shared_file.read(lambda work: work.execute("SELECT * FROM events"))
    nothing = event({}, spec=spec, error=ToolError(code="execution_error", message="") if fails else None)
    own_words = str(RowMaker(counts=False, hasher=ArgumentHasher(None)).of_call(nothing, NOON))
    for leaf in _leaves(args):
        assert leaf not in str(written) or leaf in own_words or leaf in REASONS  # such as a part of "execution_error"


# A log that can't be written


AWAY = "the database can't be reached; nothing has changed, try again"


def test_lines_wait_while_they_cant_be_written(log: Audited, place) -> None:
    log.note("admin", "one")
    log.flush()
    place.is_away = True
    for name in ("two", "three"):
        log.note("admin", name)
    log.flush()
    assert log.problem == AWAY
    place.is_away = False
    log.flush()
    assert log.problem is None
    assert [line["what"] for line in lines(place)] == ["one", "two", "three"]
    assert log.lost == 0


def test_lines_are_written_by_themselves_when_they_can_be_again(either, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "RETRY_S", 0.05)
    log = Audited(either, AuditConfig())
    either.is_away = True
    log.note("admin", "one")
    until(lambda: log.problem == AWAY)
    either.is_away = False
    until(lambda: log.problem is None)
    assert [line["what"] for line in lines(either)] == ["one"]
    log.close()


@pytest.mark.attack("event queue")
def test_lost_lines_are_counted_and_told_once_and_a_line_says_how_many(
    log: Audited, place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log.flush()
    place.is_away = True
    monkeypatch.setattr(journal, "MAX_WAITING", 5)
    for number in range(8):
        log.note("admin", f"{number}")
        log.flush()
    assert log.lost == 3
    assert sum("can't be written" in one.message for one in caplog.records) == 1
    place.is_away = False
    log.flush()
    assert [line["what"] for line in lines(place)] == ["0", "1", "2", "3", "4", "3 lines lost"]
    assert lines(place)[-1]["kind"] == "gap"
    log.note("admin", "later")
    log.flush()
    assert lines(place)[-1]["what"] == "later"


def test_an_event_without_a_line_is_counted_as_lost_once(log: Audited, place, monkeypatch: pytest.MonkeyPatch) -> None:
    row = RowMaker.of_entry
    monkeypatch.setattr(RowMaker, "of_entry", lambda maker, entry: 1 / 0 if entry.what == "one" else row(maker, entry))
    for name in ("one", "two"):
        log.note("admin", name)
        log.flush()
    assert log.lost == 1
    assert [(line["kind"], line["what"]) for line in lines(place)] == [("gap", "1 line lost"), ("admin", "two")]


def test_where_it_is_required_a_line_is_kept_or_an_error_is_raised(either) -> None:
    log = Audited(either, AuditConfig(mode="required"), Clock())
    log.write("call", "web.get")
    assert [line["what"] for line in lines(either)] == ["web.get"]
    either.is_away = True
    with pytest.raises(AuditUnavailableError, match="can't be reached") as caught:
        log.write("call", "web.get")
    assert caught.value.reason == "audit_unavailable"
    assert "10.0.0.9" not in str(caught.value)  # callers read it
    either.is_away = False
    log.write("call", "again")
    assert [line["what"] for line in lines(either)] == ["web.get", "again"]
    log.close()


FULL = """
import os, resource, signal, sys
from pathlib import Path
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal import AuditUnavailableError, Journal, JournalSettings
log = Journal(SqliteDatabase(Path(sys.argv[1])), settings=JournalSettings(audits=True, is_required=True))
write = lambda *what: log.require(log.entry(*what))
write("admin", "before")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
written = 0
try:
    for number in range(10_000):
        write("admin", f"{number}")
        written += 1
except AuditUnavailableError as error:
    print(written, error)
log.record(log.entry("admin", "waits"))
log.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write("admin", "after")
"""


@pytest.mark.attack("event queue")
def test_a_real_full_disk_refuses_a_line_and_loses_none(tmp_path: Path) -> None:
    """The kernel refuses to write more than RLIMIT_FSIZE, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "state.db")], capture_output=True, text=True, check=True
    )
    written, _, why = done.stdout.partition(" ")
    assert "the audit log can't be written (" in why
    whats = [line["what"] for line in lines_in(tmp_path)]
    assert whats == ["before", *map(str, range(int(written))), "waits", "after"]


def test_it_is_written_without_being_asked_within_a_moment_and_at_the_end(place) -> None:
    log = Audited(place, AuditConfig())
    log.note("admin", "soon")
    until(lambda: lines(place))
    assert [line["what"] for line in lines(place)] == ["soon"]
    log.note("admin", "at the end")
    log.close()
    assert lines(place)[-1]["what"] == "at the end"


def test_the_settings_are_those_of_the_config() -> None:
    assert msgspec.structs.asdict(AuditConfig()) == {"mode": "usual", "retention_days": 90, "max_mb": 1024}
