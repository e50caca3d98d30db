"""Callers who were let in are remembered: what then changes counts with the next request, for every way to show it."""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from document_stores import stored_tokens
from interfaces.http.matrix import bearer, served, status_of
from interfaces.http.test_named_tokens import tokens

from onetool.core.principal import Rate
from onetool.http.asgi import HttpError
from onetool.interfaces.http import credentials as of_credentials
from onetool.interfaces.http.admissions import Admission
from onetool.services.access_tokens import TokenStore

pytestmark = pytest.mark.attack("the one store")

FORMS = [
    *("Bearer {}", "bearer {}", "BEARER {}", "Bearer  {}", "Bearer {} ", "bEaReR    {}   "),
    *(
        "Bearer\t{}",
        "Bearer {}\t",
        " Bearer {}",
        "Bearer Bearer {}",
        "Basic {}",
        "{}",
        "Bearer {}, Bearer {}",
        "Bearer\xa0{}",
    ),
]


class Site:
    """The routes of a server without a server, and its stored tokens, as another process has them."""

    def __init__(self, folder, **config):
        self.app, self.routes = served(folder, {"http": {"tokens": [], **config}})
        self.store = stored_tokens(self.app.config.home)

    @property
    def credentials(self):
        return self.routes.rules.credentials

    def who(self, token, form="Bearer {}"):
        """Who is let in, as its name and role; None: nobody."""
        try:
            found = self.credentials.identify(form.replace("{}", token).encode("latin-1"))
        except HttpError:
            return None
        return found.name, found.role

    def remember(self, token):
        """Show it in every form. Return the forms in which it is let in."""
        return [form for form in FORMS if self.who(token, form)]


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path / "it")
    site.store.add("keeper", role="admin")
    yield site
    site.app.close()


@pytest.fixture
def token(site):
    """A token that was shown in all its forms."""
    token = site.store.add("ci", role="admin")
    assert site.remember(token)[:4] == FORMS[:4]
    return token


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_request_reads_the_stored_tokens_once(tmp_path, monkeypatch, is_shown):
    """Each read asks the file system and the database, which is a tenth of a call."""
    site = Site(tmp_path / "other")
    headers = bearer(site.store.add("ci", role="admin") if is_shown else None)
    assert status_of(site.routes, "/tools/bundles", "GET", headers)[0] == 200
    reads, view = [], TokenStore.view
    monkeypatch.setattr(TokenStore, "view", lambda store: (reads.append(store), view(store))[1])
    assert status_of(site.routes, "/tools/bundles", "GET", headers)[0] == 200
    assert len(reads) == 1
    site.app.close()


def revoked(site, token):
    site.store.revoke("ci")


def added_again(site, token):
    site.store.revoke("ci")
    site.store.add("ci", role="call")


def renamed(site, token):
    """The same token, under another name and with fewer rights, as an older export could have it."""
    hash = f"sha256:{sha256(token.encode()).hexdigest()}"
    edited(
        site, lambda state: [one.update(name="other", role="call") for one in state["tokens"] if one["hash"] == hash]
    )
    return "other", "call"


def with_fewer_rights(site, token):
    edited(site, lambda state: [one.update(role="call") for one in state["tokens"] if one["name"] == "ci"])
    return "ci", "call"


def expired(site, token):
    edited(site, lambda state: [one.update(expires=time.time() - 1) for one in state["tokens"] if one["name"] == "ci"])


def gone(site, token):
    edited(site, lambda state: state.update(tokens=[one for one in state["tokens"] if one["name"] != "ci"]))


def all_gone(site, token):
    site.store._documents.delete("tokens")


def damaged(site, token):
    site.store._documents.write("tokens", b'{"tokens": [{"name": "ci"}]}')


def edited(site, change):
    """Change the document as another process would."""
    documents = site.store._documents
    _, body = documents.load("tokens")
    state = json.loads(body)
    change(state)
    documents.write("tokens", json.dumps(state).encode())


CHANGES = [revoked, added_again, renamed, with_fewer_rights, expired, gone, all_gone, damaged]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_counts_in_every_form(site, token, change):
    expected = change(site, token)
    assert {site.who(token, form) for form in FORMS[:6]} == {expected}
    assert {site.who(token, form) for form in FORMS[6:]} <= {expected, None}
    assert site.who("nobody") is None
    assert status_of(site.routes, "/tools/tools", "GET")[0] == 401


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_ends_with_its_token(site, token, change):
    made = json.loads(status_of(site.routes, "/login", "POST", (), json.dumps({"token": token}).encode())[1])["session"]
    assert site.who(made) == ("ci", "admin")
    expected = change(site, token)
    assert site.who(made) in (expected, None)
    assert site.who(made) != ("ci", "admin")


def test_a_token_that_expires_while_it_is_remembered(site, monkeypatch):
    token = site.store.add("short", expires=time.time() + 60)
    assert site.remember(token)
    monkeypatch.setattr(of_credentials, "time", lambda: time.time() + 61)
    known = site.credentials._tokens
    known._clock, known._table = lambda: time.time() + 61, None  # which has a clock of its own
    assert site.remember(token) == []


@pytest.mark.parametrize("form", FORMS[6:])
def test_forms_that_are_none(site, token, form):
    assert site.who(token, form) in (None, ("ci", "admin"))
    assert site.who(token[:-1], form) is None


def test_other_texts_that_hash_to_no_token(site, token):
    digest = sha256(token.encode()).hexdigest()
    for text in (
        digest,
        f"sha256:{digest}",
        sha256(token.encode()).digest().decode("latin-1"),
        token.upper(),
        token + "\x00",
    ):
        assert site.who(text) is None


def test_a_revocation_in_the_middle_of_many_requests(site, token):
    """Many threads ask while it is revoked: who asks afterwards is refused."""

    def ask(_):
        return [site.who(token) for _ in range(200)]

    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(ask, range(8))
        site.store.revoke("ci")
        after = [site.who(token) for _ in range(50)]
        assert all(one in (None, ("ci", "admin")) for many in asked for one in many)
    assert set(after) == {None}


def test_a_flood_of_tokens_forgets_no_revocation(site, token):
    for number in range(12_000):
        site.who(f"ot_{number}")
    site.store.revoke("ci")
    assert site.remember(token) == []


def test_a_rate_belongs_to_the_token_and_not_to_its_form(tmp_path):
    site = Site(tmp_path / "it")
    token = site.store.add("slow", rate=Rate(2, 3600))
    asked = [
        status_of(site.routes, "/tools/tools", "GET", [("authorization", form.replace("{}", token))])[0]
        for form in FORMS[:6]
    ]
    assert asked == [200, 200, 429, 429, 429, 429]
    site.app.close()


def test_what_is_under_way_ends_with_its_token(site, token):
    async def main():
        admission = Admission(lambda: site.credentials.identify(f"Bearer {token}".encode()), None, None, 0)
        admission.principal = admission.identify()
        before = admission.is_valid()
        with_fewer_rights(site, token)
        return before, admission.is_valid()

    assert asyncio.run(main()) == (True, False)


# Real processes


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    from interfaces.http.conftest import Served

    server = Served(tmp_path_factory.mktemp("workers"), "--port", "0", "--workers", "2", config={}, real=True)
    server.anna, server.ben = tokens(server, "add", "anna"), tokens(server, "add", "ben")
    yield server
    server.stop()


def asked(server, token, path, method="GET", body=None, times=8):
    """Ask several times on connections of their own, so that both processes are asked."""
    sent = b"" if body is None else json.dumps(body).encode()
    return [server.ask(path, method, bearer(token), sent) for _ in range(times)]


@pytest.mark.long
def test_a_result_of_one_is_not_there_for_others_in_any_process(workers):
    made = asked(workers, workers.anna, "/run", "POST", {"code": "'secret-of-anna ' * 9_000"}, 1)[0]
    handle = re.search(r"[0-9a-f]{32}", made.body.decode())
    assert handle, made.body[:500]
    handle = handle[0]
    for path in (f"/results/{handle}", f"/results/{handle}/text"):
        assert not [one for one in asked(workers, workers.ben, path) if b"secret-of-anna" in one.body]
    body = {"handle": handle}
    assert not [one for one in asked(workers, workers.ben, "/call/ot.result", "POST", body) if b"secret-of" in one.body]
    assert not [one for one in asked(workers, workers.ben, "/results") if handle.encode() in one.body]


@pytest.mark.long
def test_names_of_one_run_are_not_there_in_the_next(workers):
    asked(workers, workers.anna, "/run", "POST", {"code": "left_behind = 'of anna'; left_behind"})
    seen = asked(workers, workers.ben, "/run", "POST", {"code": "left_behind"})
    assert not [one for one in seen if b"of anna" in one.body]
    seen = asked(workers, workers.ben, "/run", "POST", {"code": "sorted(globals()) if False else [x for x in dir()]"})
    assert not [one for one in seen if b"left_behind" in one.body]


@pytest.mark.long
def test_what_one_has_sent_is_masked_for_others(workers):
    asked(workers, workers.anna, "/call/tools.echo", "POST", {"value": "sent-by-anna"})
    for path in ("/tools/stats", "/tools/stats/calls", "/events/recent", "/audit"):
        assert not [one for one in asked(workers, workers.ben, path, times=4) if b"sent-by-anna" in one.body]


@pytest.mark.long
def test_a_revocation_counts_in_all_processes(workers):
    gone = tokens(workers, "add", "gone")
    assert {one.status for one in asked(workers, gone, "/tools/tools", times=20)} == {200}
    tokens(workers, "revoke", "gone")
    assert {one.status for one in asked(workers, gone, "/tools/tools", times=20)} == {401}
    assert {one.status for one in asked(workers, workers.anna, "/tools/tools", times=6)} == {200}


@pytest.mark.long
def test_a_session_that_was_ended_counts_in_no_process(workers):
    made = workers.ask("/login", "POST", [], json.dumps({"token": workers.anna}).encode()).json["session"]
    assert {one.status for one in asked(workers, made, "/tools/tools", times=12)} == {200}
    assert workers.ask("/login", "DELETE", bearer(made)).status == 204
    assert {one.status for one in asked(workers, made, "/tools/tools", times=12)} == {401}


@pytest.mark.long
def test_a_flood_of_refused_requests_leaves_no_file_that_grows(workers):
    def sizes():
        files = [one for one in workers.folder.rglob("*") if one.is_file() and one.name != "stderr.txt"]
        return sum(one.stat().st_size for one in files)

    for number in range(300):
        workers.ask("/call/time.now", "POST", bearer(f"ot_{number}"), b"{}")
    before = sizes()
    for number in range(300):
        workers.ask("/call/time.now", "POST", bearer(f"ot_{number}"), b"{}")
    assert sizes() - before < 200_000
