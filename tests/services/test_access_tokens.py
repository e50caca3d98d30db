"""Tokens that are stored: only their hashes, by many processes at once, and closed after they are lost."""

import gc
import json
import os
import stat
import time
from threading import Thread

import pytest
from document_stores import database, database_url, in_home, places, postgres, stored_tokens
from helpers import until

from onetool.core.principal import Principal, Rate
from onetool.database import DatabaseAwayError
from onetool.database import documents as documents_module
from onetool.database.restoring import restore, set_aside
from onetool.services.access_tokens import (
    DOCUMENT,
    MARKER,
    PREFIX,
    TokenNameError,
    TokenStore,
    TokenStoreError,
    token_digest,
    token_hash,
)
from onetool.services.request_rates import MAX_PRINCIPALS, PARTS, RequestRates

__all__ = ["database", "database_url", "places", "postgres"]

HASH = "sha256:" + "ab" * 32


class Clock:
    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    return stored_tokens(tmp_path, clock)


@pytest.fixture
def two(places, clock):
    """The tokens of SQLite, then of PostgreSQL, as two processes have them."""
    return TokenStore(places("tokens"), clock), TokenStore(places("tokens"), clock)


def test_a_token_is_found_by_its_digest_and_says_what_it_may(two, clock):
    store, other = two
    text = store.add("ci", "edit", ("time.*", "web.get"), Rate(600, 60), clock.now + 5)
    assert text.startswith(PREFIX)
    assert len(text) > 40
    token = store.find(token_digest(text))
    assert (token.name, token.role, token.tools, token.rate) == ("ci", "edit", ("time.*", "web.get"), Rate(600, 60))
    assert (token.expires, token.created, token.hash) == (clock.now + 5, clock.now, token_hash(text))
    assert token.principal == Principal(
        name="ci", owner="ci", role="edit", tools=("time.*", "web.get"), rate=Rate(600, 60), expires=clock.now + 5
    )
    assert (store.named("ci"), store.list()) == (token, (token,))
    assert store.find(token_digest(text + "x")) is None
    assert store.find(b"") is None
    assert other.find(token_digest(text)) == token


def test_the_database_holds_hashes_and_is_for_its_owner_alone(store, tmp_path):
    text = store.add("ci")
    for file in (file for file in tmp_path.iterdir() if file.is_file()):
        assert text.removeprefix(PREFIX).encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (tmp_path / MARKER).exists()
    assert "ab" * 8 not in repr(store.list())
    assert store.list()[0].hash not in repr(store.list())


def test_two_tokens_never_have_one_name(two):
    store, other = two
    store.add("ci")
    before = store.list()
    for one in two:
        with pytest.raises(TokenNameError, match=r"ci is taken.*onetool tokens revoke ci"):
            one.add("ci", "admin")
    assert store.list() == other.list() == before


def test_revoking_counts_in_every_store(two, clock):
    """At once in the processes of a machine. Other replicas are told, and look each second."""
    store, other = two
    text = store.add("ci")
    digest = token_digest(text)
    assert other.find(digest)
    store.revoke("ci")
    assert (store.find(digest), digest in store.view().revoked) == (None, True)
    if other._documents.is_shared:
        until(lambda: digest in other.view().revoked)
    assert other.find(digest) is None
    assert [(one.name, one.at) for one in other.revoked().values()] == [("ci", clock.now)]
    assert (other.list(), other.named("ci")) == ((), None)
    assert text != store.add("ci")  # the name is free again
    until(lambda: other.named("ci"))
    assert (other.find(digest), digest in other.view().revoked, other.named("ci").name) == (None, True, "ci")
    with pytest.raises(TokenNameError, match="onetool tokens list"):
        store.revoke("nobody")


def test_a_token_of_the_config_can_be_revoked(two):
    store, other = two
    store.revoke_hash(HASH, "deploy")
    assert bytes.fromhex("ab" * 32) in store.view().revoked
    assert other.revoked()[HASH].name == "deploy"


def test_stores_that_add_at_once_lose_nothing(two):
    def add(store, first):
        for number in range(5):
            store.add(f"{first}{number}")

    work = [Thread(target=add, args=one) for one in zip(two * 2, "abcd", strict=True)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    until(lambda: all(len(store.list()) == 20 for store in two))


@pytest.mark.long
@pytest.mark.parametrize("places", ["postgres"], indirect=True)
def test_while_the_database_is_away_what_was_known_counts(two, postgres):
    store, late = two
    text = store.add("ci")
    postgres.stop()
    try:
        assert store.find(token_digest(text)).name == "ci"
        assert (late.find(token_digest(text)), late.guards) == (None, True)
        assert "the database can't be reached" in late.problem
        with pytest.raises(DatabaseAwayError):
            store.revoke("ci")
    finally:
        assert postgres.start_again()
    until(lambda: late.find(token_digest(text)))


def test_revoking_the_last_token_opens_no_door(two):
    store, _ = two
    assert not store.guards
    store.add("ci")
    assert store.guards
    store.revoke("ci")
    assert store.guards


def deleted(store):
    """Somebody deletes the row."""
    store._documents.delete(DOCUMENT)


def test_deleting_all_tokens_opens_no_running_server(two):
    store, other = two
    text = store.add("ci")
    until(lambda: other.find(token_digest(text)))
    deleted(store)
    until(lambda: other.find(token_digest(text)) is None)
    assert (store.guards, other.guards, store.list()) == (True, True, ())
    anew = TokenStore(other._documents, memory=other.memory)  # after a reload
    assert anew.guards
    assert not TokenStore(other._documents).guards  # after a restart, without a marker
    assert TokenStore(other._documents, is_closed=True).guards


def test_what_was_seen_revoked_stays_so_when_the_row_is_gone_or_an_older_one(two):
    store, other = two
    text = store.add("ci")
    older = store._documents.read(DOCUMENT)
    store.revoke("ci")
    store.revoke_hash(token_hash("of the config"), "bo")
    until(lambda: token_digest("of the config") in other.view().revoked)
    deleted(store)
    until(lambda: other.view().stamp is None)
    assert token_digest("of the config") in other.view().revoked
    store._documents.write(DOCUMENT, older)
    until(lambda: other.view().stamp is not None)
    assert (other.find(token_digest(text)), token_digest(text) in other.view().revoked) == (None, True)


# What does not count


def newer(body):
    return json.dumps({**json.loads(body), "version": 2}).encode()


def short_hash(body):
    content = json.loads(body)
    content["tokens"][0]["hash"] = "sha256:"
    return json.dumps(content).encode()


def another_role(body):
    return body.replace(b'"admin"', b'"root"')


DAMAGES = {
    "cut": lambda body: body[:-7],
    "empty": lambda body: b"",
    "newer": newer,
    "short_hash": short_hash,
    "another_role": another_role,
    "deep": lambda body: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_document_that_does_not_count_lets_nobody_in_and_says_so(damage, store, caplog):
    text = store.add("ci", "admin")
    assert store.find(token_digest(text))
    good = store._documents.read(DOCUMENT)
    bad = DAMAGES[damage](good)
    store._documents.write(DOCUMENT, bad)
    for _ in range(3):
        assert store.find(token_digest(text)) is None
    assert store.find(bytes(32)) is None
    assert len([record for record in caplog.records if store.place in record.getMessage()]) == 1
    assert store.place in store.problem
    assert store.guards  # who shows nothing is not let in, either
    for ask in (store.list, lambda: store.named("ci"), lambda: store.add("x"), lambda: store.revoke("ci")):
        with pytest.raises(TokenStoreError, match="damaged, or were written by a newer version"):
            ask()
    assert store._documents.read(DOCUMENT) == bad
    assert token_hash(text)[10:] not in caplog.text
    store._documents.write(DOCUMENT, good)  # mended
    assert (store.find(token_digest(text)).name, store.problem) == ("ci", None)


@pytest.mark.parametrize("how", ["link", "others_write", "somebody_else"])
def test_a_database_that_others_could_have_written_lets_nobody_in(how, tmp_path):
    stored_tokens(tmp_path).add("ci")
    file = tmp_path / "state.db"
    if how == "link":
        file.rename(tmp_path / "real.db")
        file.symlink_to(tmp_path / "real.db")
    elif how == "others_write":
        file.chmod(0o602)
    elif os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    else:
        os.chown(file, 12345, -1)
    store = stored_tokens(tmp_path)
    assert "is not used" in store.problem
    assert store.guards


@pytest.mark.parametrize("how", ["disk", "lock", "marker"])
def test_what_cant_be_written_changes_nothing_and_is_told(how, store, monkeypatch, tmp_path):
    text = store.add("ci")
    if how == "disk":
        monkeypatch.setattr(documents_module, "write_row", refuse)
    elif how == "lock":
        monkeypatch.setattr("onetool.core.flock.take", lambda *_, **__: False)
        monkeypatch.setattr("onetool.services.access_tokens.MAX_WAIT_S", 0.05)
    else:
        monkeypatch.setattr("onetool.services.access_tokens.sync_folder", refuse)
    for act in (lambda: store.add("x"), lambda: store.revoke("ci"), lambda: store.revoke_hash(HASH, "y")):
        if how == "marker":
            (tmp_path / MARKER).unlink(missing_ok=True)
        with pytest.raises(TokenStoreError, match=r"can't be stored \(.+\): nothing was changed"):
            act()
    monkeypatch.undo()
    assert stored_tokens(tmp_path).find(token_digest(text))
    assert [token.name for token in stored_tokens(tmp_path).list()] == ["ci"]


def refuse(*_args, **_more):
    raise OSError(28, "No space left on device")


# After a loss


def test_a_database_that_is_deleted_opens_no_server(store, tmp_path):
    text = store.add("ci")
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    assert (store.find(token_digest(text)), store.guards) == (None, True)
    started = stored_tokens(tmp_path)
    assert (started.find(token_digest(text)), started.guards, started.list()) == (None, True, ())
    assert started.find(token_digest(started.add("ci")))


@pytest.mark.parametrize("how", ["restored", "begun anew"])
def test_a_damaged_database_opens_no_server(tmp_path, caplog, how):
    text = stored_tokens(tmp_path).add("ci")
    gc.collect()  # a connection that is closed later would write its log to the file
    for file in tmp_path.glob("state.db-*"):
        file.unlink()
    (tmp_path / "state.db").write_bytes(b"garbage" * 1000)
    store = stored_tokens(tmp_path)
    assert (store.find(token_digest(text)), store.guards) == (None, True)
    assert "is damaged" in caplog.text
    restore(tmp_path / "state.db") if how == "restored" else set_aside(tmp_path / "state.db")
    assert list(tmp_path.glob("state.db.damaged-*"))
    for opened in (store, stored_tokens(tmp_path)):
        assert (opened.find(token_digest(text)), opened.guards, opened.list()) == (None, True, ())


def test_the_marker_is_there_before_the_first_token(store, tmp_path, monkeypatch):
    monkeypatch.setattr(documents_module, "write_row", refuse)
    with pytest.raises(TokenStoreError):
        store.add("ci")
    assert (tmp_path / MARKER).exists()
    assert stored_tokens(tmp_path).guards


def test_a_copy_of_the_database_alone_gets_its_marker(store, tmp_path):
    store.add("ci")
    (tmp_path / MARKER).unlink()
    assert stored_tokens(tmp_path).list()
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    assert stored_tokens(tmp_path).guards


def test_reading_makes_nothing(tmp_path):
    store = stored_tokens(tmp_path / "home")
    assert (store.guards, store.find(bytes(32)), store.list()) == (False, None, ())
    assert not (tmp_path / "home").exists()


def test_a_question_reads_the_document_only_after_a_change(store, monkeypatch):
    digests = [token_digest(store.add(f"t{number}")) for number in range(5)]
    assert store.find(digests[0])
    monkeypatch.setattr(documents_module, "read_row", None)  # who reads it fails
    assert all(store.find(digest) for digest in digests)
    assert store.find(bytes(32)) is None


def test_the_document_is_not_decoded_again_after_other_changes(store, tmp_path, monkeypatch):
    digest = token_digest(store.add("ci"))
    assert store.find(digest)
    in_home(tmp_path, "servers").write("other", b"{}")
    monkeypatch.setattr("onetool.services.access_tokens.read_tokens", None)
    assert store.find(digest)


# Rates


def caller(count, seconds, name="ci"):
    return Principal(name=name, owner=name, rate=Rate(count, seconds))


def test_who_has_no_rate_is_not_counted(clock):
    rates = RequestRates(clock)
    assert [rates.check(Principal(name="x")) for _ in range(3)] == [None] * 3
    assert not rates._windows


def test_the_request_after_the_last_one_waits_until_the_time_that_it_is_told(clock):
    rates, ci = RequestRates(clock), caller(3, 60)
    assert [rates.check(ci) for _ in range(3)] == [None] * 3
    wait = rates.check(ci)
    assert 60 <= wait <= 60 + 60 / PARTS
    clock.now += wait - 0.01
    assert rates.check(ci) is not None
    clock.now += 0.02
    assert rates.check(ci) is None
    assert rates.check(caller(3, 60, "other")) is None


def test_credentials_of_one_caller_with_different_rates_are_counted_together(clock):
    """As JWTs of one person with different scopes are."""
    rates = RequestRates(clock)
    taken = [rates.check(caller(5 + number % 2, 60)) is None for number in range(40)]
    assert sum(taken) == 6
    taken = [rates.check(caller(7, 3600 if number % 2 else 60, "two")) is None for number in range(40)]
    assert sum(taken) == 14  # seven of each, and no more


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (7, 60), (100, 60), (50, 3600)])
def test_no_window_ever_has_more_than_the_rate_allows(count, seconds, clock):
    rates, ci, taken = RequestRates(clock), caller(count, seconds), []
    for step in range(4000):
        clock.now += seconds / count * ((step * 7919) % 13) / 20
        if rates.check(ci) is None:
            taken.append(clock.now)
        assert len(rates._windows["ci", seconds]._parts) <= PARTS + 1
    assert len(taken) > count
    for first, last in zip(taken, taken[count:], strict=False):
        assert last - first > seconds * (1 - 1e-9)


def test_another_rate_begins_anew_and_memory_is_bounded(clock):
    rates = RequestRates(clock)
    assert rates.check(caller(1, 60)) is None
    assert rates.check(caller(1, 60)) is not None
    assert rates.check(caller(2, 60)) is None
    for number in range(MAX_PRINCIPALS + 10):
        rates.check(caller(1, 60, f"n{number}"))
    assert len(rates._windows) == MAX_PRINCIPALS
    assert rates.check(caller(1, 60, f"n{MAX_PRINCIPALS}")) is not None


def test_clocks_are_real_where_none_is_given(tmp_path):
    before = time.time()
    store = stored_tokens(tmp_path)
    store.add("ci")
    assert before - 1 < store.named("ci").created < time.time() + 1
    assert RequestRates().check(caller(1, 60)) is None
