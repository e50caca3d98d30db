"""`onetool db import` and `export` of documents and bundles: encrypted where that is needed, never less revoked."""

import json
import time
from contextlib import closing, contextmanager

import msgspec
import psycopg
import pytest
from helpers import cli

from onetool.app import App
from onetool.app.database import open_database
from onetool.app.database_copy import Place, copy_state, open_export, open_place
from onetool.app.documents import documents_in
from onetool.config import find, load_config
from onetool.database.migrations import migrate
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import TokenStore, token_digest
from onetool.services.page_sessions import LoginSessionState, read_session_state
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.store.copy import export_bundles
from onetool.sources.bundles.store.store import folder_store

CLUSTER = {"address": "127.0.0.1:8765", "key": "a key that is long enough for everybody"}
SAY = {"type": "script", "scriptImpl": {"code": "'hi'"}}
LOGIN = b'{"refresh_token": "rotating-secret"}'
KINDS = ("servers", "logins", "tokens", "page_sessions")
FAR = int(time.time()) + 10**6


def configure(folder, url=None, **more):
    database = {"database": url, "cluster": CLUSTER} if url else {}
    (folder / "onetool.yaml").write_text(json.dumps({"audit": "none", **database, **more}))


def documents(database, config, kind):
    return documents_in(database, kind, config, "never")


class Home:
    """A home with a document of every kind and a bundle, and its config with a database."""

    def __init__(self, folder, url):
        self.folder = folder
        configure(folder)
        with App.open(folder / "onetool.yaml") as app:
            id = new_id(time.time())
            app.bundles.put_bundle(id, {"slug": "mine"})
            app.bundles.put_tool(id, "say", "1", SAY)
        configure(folder, url)
        for kind, body in (("servers", b"{}"), ("logins", LOGIN)):
            self.write(kind, "one", body)
        self.write("page_sessions", "sessions", msgspec.json.encode(LoginSessionState(b"k" * 32, {"ended": FAR})))
        with self.tokens() as tokens:
            self.token, self.revoked = tokens.add("ci", "edit"), tokens.add("old")
            tokens.revoke("old")

    @property
    def config(self):
        return load_config(find(self.folder / "onetool.yaml"))

    def write(self, kind, key, body):
        with closing(SqliteDatabase(self.folder / "state.db")) as database:
            documents(database, self.config, kind).write(key, body)

    def tokens(self, folder=None):
        return opened_tokens(folder or self.folder, self.config)

    def copy(self, to=None, force=False, **changes):
        """Return what was moved, what was there and what was left: into the database, or from it."""
        config = msgspec.structs.replace(self.config, **changes)
        with closing(open_database(config)) as database:
            migrate(database)
            inside = Place(database, None)
            if to is None:
                with open_place(self.folder) as place:
                    return shown(copy_state(place, inside, config, tell, force=force))
            with open_export(to) as place:
                return shown(copy_state(inside, place, config, tell))


@contextmanager
def opened_tokens(folder, config):
    with closing(SqliteDatabase(folder / "state.db")) as database:
        yield TokenStore(documents(database, config, "tokens"))


def tell(store, done, total):
    assert 0 < done <= total


def shown(found):
    return {name: (one.moved, one.same, len(one.left)) for name, one in found if one != type(one)()}


def bodies(folder, config, kind):
    with closing(SqliteDatabase(folder / "state.db")) as database:
        found = documents(database, config, kind)
        keys = found.keys()
        return {key: found.read(key) for key in keys}


@pytest.fixture
def home(tmp_path, database_url):
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder, database_url)


ALL = {"bundles": 1, "servers": 1, "logins": 1, "tokens": 1, "page_sessions": 1}


def test_everything_goes_into_the_database_and_back(home, tmp_path, database_url):
    done = cli("--config", "onetool.yaml", "db", "import", cwd=home.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert home.copy() == {name: (0, count, 0) for name, count in ALL.items()}
    with psycopg.connect(database_url) as connection:
        kept = [body for (body,) in connection.execute("SELECT body FROM documents")]
    assert len(kept) == 4
    assert all(body.startswith(b"OT1") and b"secret" not in body for body in kept)
    back = tmp_path / "back"
    assert home.copy(back) == {name: (count, 0, 0) for name, count in ALL.items()}
    for kind in KINDS:
        assert bodies(back, home.config, kind) == bodies(home.folder, home.config, kind)
    with closing(folder_store(home.folder / "bundles")) as one, closing(folder_store(back / "bundles")) as other:
        assert export_bundles(one) == export_bundles(other)
    assert not list(back.glob("*.lock")) + list(back.glob(".*.lock")) + list(back.glob("state.db-*"))


def test_what_differs_is_told_and_replaced_with_force(home, tmp_path):
    home.copy()
    home.write("logins", "one", b"another")
    home.write("servers", "one", b"another")
    home.write("page_sessions", "sessions", msgspec.json.encode(LoginSessionState(b"l" * 32)))
    done = home.copy()
    assert {name: left for name, (_, _, left) in done.items() if left} == dict.fromkeys(
        ("logins", "servers", "page_sessions"), 1
    )
    home.copy(tmp_path / "before")
    assert bodies(tmp_path / "before", home.config, "logins") == {"one": LOGIN}
    assert home.copy(force=True)["logins"] == (1, 0, 0)
    home.copy(tmp_path / "after")
    assert bodies(tmp_path / "after", home.config, "logins") == {"one": b"another"}


def test_a_revocation_and_a_sign_out_are_never_undone(home, tmp_path):
    """By an import of what was there before, with or without force."""
    home.copy()
    saved = {kind: bodies(home.folder, home.config, kind) for kind in ("tokens", "page_sessions")}
    with home.tokens() as tokens:
        tokens.revoke("ci")
    home.write("page_sessions", "sessions", msgspec.json.encode(LoginSessionState(b"k" * 32, {"other": FAR})))
    done = home.copy()
    assert (done["tokens"], done["page_sessions"]) == ((1, 0, 0), (1, 0, 0))
    for kind, kept in saved.items():
        for key, body in kept.items():
            home.write(kind, key, body)
    done = home.copy(force=True)
    assert (done["tokens"], done["page_sessions"]) == ((0, 1, 0), (0, 1, 0))
    back = tmp_path / "back"
    home.copy(back)
    with home.tokens(back) as tokens:
        assert token_digest(home.token) in tokens.view().revoked
    (sessions,) = bodies(back, home.config, "page_sessions").values()
    assert read_session_state(sessions).ended == {"ended": FAR, "other": FAR}


def test_what_another_key_has_encrypted_is_told(home, tmp_path, database_url):
    home.copy()
    cluster = {**CLUSTER, "key": "another key, which is as long as that one"}
    configure(home.folder, database_url, cluster=cluster)
    done = home.copy(tmp_path / "back")
    assert {name: left for name, (_, _, left) in done.items() if left} == dict.fromkeys(
        ("servers", "logins", "tokens", "page_sessions"), 1
    )
    assert home.copy()["logins"] == (0, 0, 1)
    assert home.copy(force=True)["logins"] == (1, 0, 0)
    assert home.copy(tmp_path / "again")["logins"] == (1, 0, 0)
