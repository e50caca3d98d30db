"""State is closed to callers wherever it lies: beside another server, in a copy, in a folder shared with a project."""

import json
import os
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from document_stores import in_home, stored_tokens
from helpers import cli
from interfaces.http.conftest import Served
from services.journals import Counted

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.state_folders import MARKER, make_home, make_state_folder
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.http.login_sessions import LoginSessions

pytestmark = pytest.mark.attack("state")

TOKEN = "caller-0123456789abcdef"
OLD_TOKENS = "access_tokens/tokens.json.before-state-db"
SESSIONS = "page_sessions/sessions.json.before-state-db"
DOCUMENT = '---\ntime: "2026-05-04T09:08:07.654Z"\ntopic: "t"\nmessage: |-\n  two\n  lines\n'

HELD = {  # topics, each of which would write where nothing may be written
    name: name
    for name in (
        f"other/{MARKER}",
        "other/new.yaml",
        "other/new/notes.yaml",
        "linked/new.yaml",
        f"second/{SESSIONS}",
        "second/access_tokens/new.yaml",
        "second/onetool.yaml",
        "second/secrets.yaml",
        "second/state.db-journal",
        "second/stats.db-journal",
        SESSIONS,
        "page_sessions/new.yaml",
        "results/new.yaml",
        "results",
        "audit",
        "state.db-journal",
        "stats.db-journal",
        "run_history",
        MARKER,
        f"docs/{MARKER}",
        "onetool.yaml",
        "ONETOOL.yaml",
        "more.yaml",
        "prompts.yaml",
        "secrets.yaml",
        ".secrets.yaml.new",
        "trust.json",
        "packs",
        "packs/mine.py",
        "packs/new/mine.py",
        "bundles/mine/bundle.json",
        "bundles/.state/state.db",
        "bundles/.state/usage.db",
        ".onetool/notes.yaml",
        ".git/hooks/pre-commit",
        ".github/workflows/new.yml",
        "docs/.hidden/notes.yaml",
        "hidden/new.yml",
        "compose.yaml",
        "begins.yaml",
        "ends.yaml",
        "keys.yaml",
        "Makefile",
        "../outside.yaml",
    )
}

OLD = ("stats.db", "stats.db-wal", "stats.db-shm", "stats.db.old")  # of versions before
COUNTED = ("onetool.yaml", "secrets.yaml", "state.db", "state.db-wal", "stats.db", "stats.db-wal")


def keep_state(home: Path) -> None:
    """Let the stores write what a server keeps."""
    LoginSessions(in_home(home, "page_sessions")).start(sha256(b"sesame").digest())
    stored_tokens(home).add("boss", "admin")
    for file in (SESSIONS, OLD_TOKENS):
        make_state_folder((home / file).parent)
        (home / file).write_text("KEY")
    database = SqliteDatabase(home / "state.db")
    stats = Counted(database)
    stats.record(CallEvent.of(call=ToolCall("1", "a.b"), duration_ms=1.0))
    stats.flush()
    database.close()
    for name in (*OLD, "run_history", "state.db.damaged-1", "secrets.yaml.bak", ".secrets.yaml.a1"):
        (home / name).write_text("KEY")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server whose state shares a folder with a project, with the state of two others and an old copy below it."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("docs", "second", "packs", ".git/hooks", ".github/workflows"):
        (folder / name).mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("fine")
    (folder / "second" / "a.txt").write_text("fine")
    (folder / "second" / "onetool.yaml").write_text("{}\n")
    make_state_folder(folder / "indexed" / "database" / "0123456789abcdef")
    (folder / "counted").mkdir()
    for name in ("indexed/onetool.yaml", *(f"counted/{name}" for name in COUNTED)):
        (folder / name).write_text("KEY")
    make_home(folder / "other")
    for home in (folder, folder / "other", folder / "second"):
        keep_state(home)
    shutil.copytree(folder / "second" / "page_sessions", folder / "copied")
    (folder / "linked").symlink_to("other")
    (folder / "hidden").symlink_to(".github")
    (folder / "more.yaml").write_text("{}\n")
    (folder / "compose.yaml").write_text("services: {}\n")
    (folder / "begins.yaml").write_text(f"{DOCUMENT}---\nservices: {{}}\n")
    (folder / "ends.yaml").write_text(f"services: {{}}\n{DOCUMENT}")
    (folder / "keys.yaml").write_text("topic: orders\nmessage: hi\n")
    (folder / "Makefile").write_text("all:\n")
    (folder / "notes.yaml").write_text(DOCUMENT)
    topics = [
        {"pattern": name, "file": file}
        for name, file in {**HELD, "notes": "notes.yaml", "docs": "docs/n/notes.yaml"}.items()
    ]
    token = {"name": "caller", "role": "call", "hash": f"sha256:{sha256(TOKEN.encode()).hexdigest()}"}
    config = {"http": {"tokens": [token]}, "topics": topics, "include": ["more.yaml"]}
    running = Served(folder, "--port", "0", config=config, env={"ONETOOL_HOME": ""}, real=True)
    (folder / "onetool.yaml.bak").write_text("KEY")
    yield running
    running.stop()


def call(server, tool, **args):
    """What a caller with the smallest role gets: the answer as text."""
    headers = [("Authorization", f"Bearer {TOKEN}")]
    reply = server.ask(f"/call/{tool}", "POST", headers, json.dumps(args).encode())
    return reply.body.decode()


CLOSED = (
    *(
        f"{home}{SESSIONS}"
        for home in ("", "other/", "second/", "linked/", "docs/../other/", "./other//", "OTHER/../other/")
    ),
    *(f"{home}{OLD_TOKENS}" for home in ("", "other/", "second/", "linked/")),
    *(f"{home}{name}" for home in ("", "other/", "second/") for name in ("state.db", "state.db.damaged-1", *OLD)),
    *(f"{home}{name}" for home in ("", "other/", "second/") for name in ("run_history", ".has-tokens")),
    *(f"{home}{name}" for home in ("", "other/", "second/") for name in ("secrets.yaml.bak", ".secrets.yaml.a1")),
    "onetool.yaml",
    "onetool.yaml.bak",
    "more.yaml",
    "second/onetool.yaml",
    "indexed/onetool.yaml",
    "indexed/database/0123456789abcdef/.gitignore",
    *(f"counted/{name}" for name in COUNTED),
    "copied/sessions.json.before-state-db",
    f"other/{MARKER}",
    "other/nothing",
    "other/page_sessions/nothing",
)


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("absolute", [False, True])
def test_state_is_not_read(server, path, absolute):
    path = os.path.join(server.folder, path) if absolute else path
    answer = call(server, "fs.read_file", path=path, encoding="base64")
    assert '"denied"' in answer
    assert "not_found" not in answer


@pytest.mark.parametrize(
    "path", ["other", "linked", "other/page_sessions", "second/access_tokens", "copied", "page_sessions"]
)
def test_state_is_not_listed_and_the_marker_is_named(server, path):
    answer = call(server, "fs.list_dir", path=path)
    assert '"denied"' in answer
    assert MARKER in answer
    assert "sessions.json" not in answer


def test_a_list_shows_the_name_and_nothing_inside(server):
    listed = json.loads(call(server, "fs.list_dir", recursive=True))
    entries = {entry["path"]: entry for entry in listed}
    for folder in ("other", "copied", "second/page_sessions"):
        assert MARKER in entries[folder]["error"]
    assert not [path for path in entries if path.startswith(("other/", "copied/")) or "sessions.json" in path]
    assert entries["docs/a.txt"]["size"] == 4


@pytest.mark.parametrize("path", ["docs/a.txt", "second/a.txt"])
def test_the_rest_of_a_shared_folder_is_read(server, path):
    assert "fine" in call(server, "fs.read_file", path=path)


@pytest.mark.parametrize(
    "path", ["other/r.html", "linked/r.html", "page_sessions/r.html", "second/audit/../results/r.html"]
)
def test_no_report_is_written_into_state(server, path):
    call(server, "ot.stats", output=path)
    assert not (server.folder / path).exists()


@pytest.mark.parametrize("topic", HELD)
def test_no_topic_is_written_where_something_else_reads(server, topic):
    file = server.folder / topic
    before = content(file)
    answer = call(server, "ot.notify", topic=topic, message="injected")
    assert "The message was not stored" in answer
    if topic.startswith("stats.db"):  # the server writes it meanwhile
        assert b"injected" not in (content(file) or b"")
    else:
        assert content(file) == before


def content(file):
    """Return what is in a file; None if there is none."""
    with suppress(OSError):
        return file.read_bytes()


@pytest.mark.parametrize(("topic", "file"), [("notes", "notes.yaml"), ("docs", "docs/n/notes.yaml")])
def test_topics_are_written_beside_the_config_and_below_the_roots(server, topic, file):
    for message in ("first", "several\nlines", "last"):
        assert "OK: " in call(server, "ot.notify", topic=topic, message=message)
    text = (server.folder / file).read_text()
    assert text.count("---\ntime: ") == 3 + (topic == "notes")


@pytest.mark.parametrize("path", [SESSIONS, OLD_TOKENS])
def test_the_command_line_and_code_read_no_state(server, path):
    invoked = cli("tools", "invoke", "fs.read_file", f"path=other/{path}", cwd=server.folder)
    assert MARKER in invoked.stdout + invoked.stderr
    ran = cli("run", f"fs.read_file(path='second/{path}')", cwd=server.folder)
    assert MARKER in ran.stdout + ran.stderr
