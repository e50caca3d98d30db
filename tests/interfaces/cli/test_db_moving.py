"""`onetool db import` and `export` with something of every kind: nothing is lost, and everything works again."""

import asyncio
import json
import os
import time
from hashlib import sha256

import msgspec
import psycopg
import pytest
from helpers import cli

from onetool.app import App
from onetool.app.database import open_database
from onetool.app.database_move import export_home, import_home
from onetool.ask.messages import Assistant, Usage, User
from onetool.ask.sessions import SessionStore
from onetool.config import find, load_config
from onetool.config.find import own_folder
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.database.moving import MoveOptions
from onetool.http.login import LoginStore, login_documents
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.services.access_tokens import TokenStore, token_digest
from onetool.services.results import ResultStore
from onetool.services.stats import UsageStats
from onetool.sources.bundles.editing import OwnExamples
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.model import ToolExample
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.transfer import export_bundles
from onetool.sources.mcp_servers.server_cache import ServerCache
from onetool.sources.mcp_servers.settings import ServerSettings

CLUSTER = {"address": "127.0.0.1:8765", "key": "a key that is long enough for everybody"}
SAY = {"type": "script", "scriptImpl": {"code": "'hi'"}}
HI = ToolExample(name="hi", args={"message": "hi"})
TOKEN = sha256(b"sesame").digest()
SERVER = ServerSettings(command="x", args=("y",))
URL = "https://mcp.example.com"


def configure(folder, url=None):
    database = {"database": url, "cluster": CLUSTER} if url else {}
    (folder / "onetool.yaml").write_text(json.dumps({"audit": "none", **database}))


def db(folder, *args):
    return cli("--config", str(folder / "onetool.yaml"), "db", *args, cwd=folder)


def said(folder, *args):
    """By store: what was moved, what was there, and what was left."""
    done = db(folder, *args)
    assert (done.returncode, done.stderr) == (0, "")
    return _by_store(json.loads(done.stdout)["stores"])


def moved(folder, to=None, force=False, **changes):
    """The same in this process, which is quicker: into the database, or from it."""
    config = msgspec.structs.replace(load_config(find(folder / "onetool.yaml")), **changes)
    database = open_database(config, "made")
    options = MoveOptions(force=force, config=config)
    try:
        found = export_home(database, to, options, tell) if to else import_home(folder, database, options, tell)
        return _by_store({"store": name, **msgspec.to_builtins(one)} for name, one in found)
    finally:
        database.close()


def tell(store, done, total):
    assert 0 < done <= total


def _by_store(rows):
    return {one["store"]: (one["moved"], one["same"], [left["what"] for left in one["left"]]) for one in rows}


def login(home, name="one"):
    return LoginStore(login_documents(home / "servers"), name, URL, "client")


def save(store, refresh_token):
    async def saved():
        async with store.locked() as held:
            await held.save(msgspec.structs.replace(store.empty, tokens={"refresh_token": refresh_token}))

    asyncio.run(saved())


def says(sessions, *texts):
    async def turns():
        for text in texts:
            async with sessions.turn("trip") as session:
                session.append(User(text=text))
                session.append(Assistant(text=f"re {text}"))
                session.end("openai", "gpt-x", Usage(), 1)

    asyncio.run(turns())


def bundles_of(home):
    store = FileStore(home / "bundles")
    try:
        return export_bundles(store)
    finally:
        store.close()


class FullHome:
    """A home with something of every kind, and what is needed to use it."""

    def __init__(self, folder):
        self.folder = folder
        configure(folder)
        with App.open(folder / "onetool.yaml") as app:
            id = new_id(time.time())
            app.bundles.put_bundle(id, {"slug": "mine"})
            app.bundles.put_tool(id, "say", "1", SAY)
        self.handle = ResultStore(folder / "results", 3600, 4).put("a long text", "ada", "a.b").handle
        says(SessionStore(folder / "sessions", owner="ada"), "hello")
        cache = ServerCache(folder / "servers", "one", SERVER)
        self.cached = msgspec.structs.replace(cache.nothing(), approved={"a": {"parameters": "x"}})
        cache.write(self.cached)
        save(login(folder), "rotating-secret")
        save(login(folder, "bundle.mine-0123"), "another-secret")
        tokens = TokenStore(folder / "access_tokens")
        self.token, self.revoked = tokens.add("ci", "edit"), tokens.add("old")
        tokens.revoke("old")
        OwnExamples(folder / "own_examples").put("ada", "t1", (HI,), lambda before: None)
        sessions = LoginSessions(folder / "page_sessions")
        self.session, (self.ended, ended) = sessions.start(TOKEN)[0], sessions.start(TOKEN)
        sessions.end(ended)
        stats = UsageStats(folder / "stats.db")
        stats.record(CallEvent(call=ToolCall("1", "a.b"), duration_ms=1.0))
        stats.flush()
        self.bundles = bundles_of(folder)

    def check(self, home):
        """That it all works in another folder."""
        assert bundles_of(home) == self.bundles
        configure(home)
        assert UsageStats(home / "stats.db").summary()["total_calls"] == 1
        with App.open(home / "onetool.yaml") as app:
            assert asyncio.run(app.call(ToolCall("1", "mine.say", {}))).data == "hi"
            assert app.runtime.tokens.find(token_digest(self.token)).principal.name == "ci"
            assert app.runtime.tokens.find(token_digest(self.revoked)).refusal
        assert ResultStore(home / "results", 3600, 4).read(self.handle, "ada") == "a long text"
        sessions = SessionStore(home / "sessions", owner="ada")
        says(sessions, "more")
        assert [one.text for one in sessions.read("trip").messages] == ["hello", "re hello", "more", "re more"]
        assert ServerCache(home / "servers", "one", SERVER).read() == self.cached
        assert login(home).read().tokens == {"refresh_token": "rotating-secret"}
        assert login(home, "bundle.mine-0123").read().tokens == {"refresh_token": "another-secret"}
        assert OwnExamples(home / "own_examples").of("ada", "t1") == (HI,)
        page = LoginSessions(home / "page_sessions")
        assert page.read(self.session, lambda name: TOKEN).name
        assert page.read(self.ended, lambda name: TOKEN) is None


ALL = {
    "bundles": 1,
    "results": 1,
    "sessions": 1,
    "servers": 1,
    "logins": 2,
    "tokens": 2,
    "own_examples": 1,
    "page_sessions": 1,
    "stats": 1,
    "audit": 0,  # see tests/services/test_audit_moving.py
}


@pytest.fixture
def home(tmp_path, database_url):
    folder = tmp_path / "home"
    folder.mkdir()
    full = FullHome(folder)
    configure(folder, database_url)
    return full


def test_everything_goes_into_the_database_and_back(home, tmp_path, database_url):
    assert said(home.folder, "import") == {name: (many, 0, []) for name, many in ALL.items()}
    assert said(home.folder, "import") == {name: (0, many, []) for name, many in ALL.items()}
    counts = json.loads(db(home.folder).stdout)["stores"]
    assert counts == {**ALL, "tokens": 1}
    with psycopg.connect(database_url) as connection:
        kept = connection.execute("SELECT body FROM documents WHERE kind IN ('logins', 'page_sessions')").fetchall()
        assert all(body.startswith(b"OT1") and b"secret" not in body for (body,) in kept)
    back = tmp_path / "back"
    assert said(home.folder, "export", str(back)) == {name: (many, 0, []) for name, many in ALL.items()}
    home.check(back)
    folders = [path for path in back.rglob("*") if path.is_dir() and path.parent == back and path.name != "bundles"]
    assert folders
    if os.name == "posix":
        assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_what_differs_is_told_and_replaced_with_force(home, tmp_path):
    moved(home.folder)
    folder = home.folder
    save(login(folder), "another one")
    cache = ServerCache(folder / "servers", "one", SERVER)
    cache.write(msgspec.structs.replace(cache.nothing(), approved={"a": {"parameters": "other"}}))
    OwnExamples(folder / "own_examples").put("ada", "t1", (), lambda before: None)
    OwnExamples(folder / "own_examples").put("ada", "t2", (HI,), lambda before: None)
    OwnExamples(folder / "own_examples").put("ada", "t1", (HI, msgspec.structs.replace(HI, name="b")), lambda _: None)
    (folder / "page_sessions" / "sessions.json").unlink()
    other = LoginSessions(folder / "page_sessions").start(TOKEN)[0]
    (folder / "access_tokens" / "tokens.json").unlink()
    ci = TokenStore(folder / "access_tokens").add("ci")
    done = moved(folder)
    assert {name: len(left) for name, (_, _, left) in done.items() if left} == {
        "servers": 1,
        "logins": 1,
        "tokens": 1,
        "own_examples": 1,
        "page_sessions": 1,
    }
    before, after = tmp_path / "before", tmp_path / "after"
    moved(folder, before)
    assert OwnExamples(before / "own_examples").of("ada", "t2") == (HI,)  # what is new was added
    OwnExamples(before / "own_examples").put("ada", "t2", (), lambda _: None)
    home.check(before)
    assert not any(left for _, _, left in moved(folder, force=True).values())
    moved(folder, after)
    assert login(after).read().tokens == {"refresh_token": "another one"}
    assert ServerCache(after / "servers", "one", SERVER).read() == cache.read()
    assert len(OwnExamples(after / "own_examples").of("ada", "t1")) == 2
    assert LoginSessions(after / "page_sessions").read(other, lambda name: TOKEN)
    tokens = TokenStore(after / "access_tokens")
    assert (tokens.find(token_digest(ci)).name, tokens.find(token_digest(home.token))) == ("ci", None)
    assert tokens.is_revoked(token_digest(home.revoked))  # force undoes no revocation


def test_a_revocation_and_a_sign_out_are_never_undone(home, tmp_path):
    """By an import of what was there before."""
    moved(home.folder)
    saved = {path: path.read_bytes() for part in ("access_tokens", "page_sessions") for path in _files(home, part)}
    TokenStore(home.folder / "access_tokens").revoke("ci")
    sessions = LoginSessions(home.folder / "page_sessions")
    sessions.end(sessions.read(home.session, lambda name: TOKEN))
    done = moved(home.folder)
    assert (done["tokens"], done["page_sessions"]) == ((1, 1, []), (1, 0, []))
    for path, data in saved.items():
        path.write_bytes(data)
    done = moved(home.folder, force=True)
    assert (done["tokens"], done["page_sessions"]) == ((0, 2, []), (0, 1, []))
    back = tmp_path / "back"
    moved(home.folder, back)
    assert TokenStore(back / "access_tokens").is_revoked(token_digest(home.token))
    assert LoginSessions(back / "page_sessions").read(home.session, lambda name: TOKEN) is None


def _files(home, part):
    return (home.folder / part).glob("*.json")


def test_tokens_of_a_project_are_sealed_in_its_folder_and_nowhere_else(home, tmp_path):
    (home.folder / "access_tokens" / "tokens.json").unlink()
    assert moved(home.folder, whose="project")["tokens"] == (0, 0, [])
    key = own_folder() / "tokens.key"
    text = TokenStore(home.folder / "access_tokens", key_file=key).add("of the project")
    assert len(moved(home.folder)["tokens"][2]) == 1  # what is sealed is no file of another home
    assert moved(home.folder, whose="project")["tokens"] == (1, 0, [])
    moved(home.folder, tmp_path / "back", whose="project")
    assert TokenStore(tmp_path / "back" / "access_tokens", key_file=key).find(token_digest(text))
    assert TokenStore(tmp_path / "back" / "access_tokens").problem


def test_what_can_not_be_read_is_listed_and_the_rest_is_moved(home):
    folder = home.folder
    for file in ("servers/bad.json", "servers/bad.auth.json", "own_examples/bad.json", "page_sessions/sessions.json"):
        (folder / file).write_text("{")
    (folder / "access_tokens" / "tokens.json").chmod(0o644)
    (folder / "results" / f"{'0' * 32}.txt").write_bytes(b"\xff")
    (bundle,) = (folder / "bundles").glob("*/bundle.json")
    bundle.write_text("{")
    done = moved(folder)
    left = {name: [os.path.relpath(one, folder) for one in left] for name, (_, _, left) in done.items() if left}
    assert str(bundle.relative_to(folder)) in left.pop("bundles")
    assert left == {
        "results": [f"results/{'0' * 32}.txt"],
        "servers": ["servers/bad.json"],
        "logins": ["servers/bad.auth.json"],
        "tokens": ["access_tokens/tokens.json"],
        "own_examples": ["own_examples/bad.json"],
        "page_sessions": ["page_sessions/sessions.json"],
    }
    assert {name: done[name][0] for name in ("results", "servers", "logins", "own_examples")} == {
        "results": 1,
        "servers": 1,
        "logins": 2,
        "own_examples": 1,
    }


def test_what_another_key_has_encrypted_is_told(home, tmp_path, database_url):
    moved(home.folder)
    config = json.loads((home.folder / "onetool.yaml").read_text())
    config["cluster"]["key"] = "another key, which is as long as that one"
    (home.folder / "onetool.yaml").write_text(json.dumps(config))
    done = moved(home.folder, tmp_path / "back")
    assert (len(done["logins"][2]), len(done["page_sessions"][2])) == (2, 1)
    done = moved(home.folder)
    assert (len(done["logins"][2]), len(done["page_sessions"][2])) == (2, 1)
    assert moved(home.folder, force=True)["logins"] == (2, 0, [])
    assert moved(home.folder, tmp_path / "again")["logins"] == (2, 0, [])


def test_no_name_in_the_database_leads_out_of_the_folder(home, tmp_path, database_url):
    moved(home.folder)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE documents SET key = '../../evil' WHERE kind = 'servers'")
    done = moved(home.folder, tmp_path / "back")
    assert done["servers"] == (0, 0, ["servers/../../evil in the database"])
    assert not list(tmp_path.rglob("evil*"))
