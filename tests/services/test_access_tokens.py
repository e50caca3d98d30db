"""Tokens that are stored: only their hashes, by many processes at once, and never by a file that somebody else could
have written.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from threading import Thread
from timeit import timeit

import pytest
from document_places import places
from helpers import until

from onetool.core.principal import Principal, Rate
from onetool.database import DatabaseAwayError, documents
from onetool.services.access_tokens import (
    DOCUMENT,
    PREFIX,
    TokenStoreError,
    TokenNameError,
    TokenStore,
    token_digest,
    token_hash,
)
from onetool.services.request_rates import MOST_PRINCIPALS, PARTS, RequestRates

__all__ = ["places"]

HASH = "sha256:" + "ab" * 32


def written(file):
    """What differs where somebody has written the file: not when it was read."""
    found = os.stat(file, follow_symlinks=False)
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


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
    return TokenStore(tmp_path / "access", clock)


@pytest.fixture
def two(places, clock):
    """The tokens of a folder, then of a database, as two processes have them."""
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


def test_the_file_holds_hashes_and_is_for_its_owner_alone(store):
    text = store.add("ci")
    file = store.file.read_text()
    assert text not in file
    assert text.removeprefix(PREFIX) not in file
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.file.parent.stat().st_mode) == 0o700
    assert (store.file.parent / ".gitignore").read_text() == "*\n"
    assert "ab" * 8 not in repr(store.list())
    assert store.list()[0].hash not in repr(store.list())


def test_two_tokens_never_have_one_name(two):
    store, other = two
    store.add("ci")
    before = store.list()
    for one in two:
        with pytest.raises(TokenNameError, match=r"called ci already.*onetool tokens revoke ci"):
            one.add("ci", "admin")
    assert store.list() == other.list() == before


def test_revoking_counts_in_every_store(two, clock):
    """At once in the processes of a folder. Other replicas are told, and look each second."""
    store, other = two
    text = store.add("ci")
    digest = token_digest(text)
    assert other.find(digest)
    store.revoke("ci")
    assert (store.find(digest), store.is_revoked(digest)) == (None, True)
    if other.file is None:
        until(lambda: other.is_revoked(digest))
    assert (other.find(digest), other.is_revoked(digest)) == (None, True)
    assert (other.revocation(digest).name, other.revocation(digest).at) == ("ci", clock.now)
    assert (other.list(), other.named("ci")) == ((), None)
    assert text != store.add("ci")  # the name is free again
    until(lambda: other.named("ci"))
    assert (other.find(digest), other.is_revoked(digest), other.named("ci").name) == (None, True, "ci")
    with pytest.raises(TokenNameError, match="onetool tokens list"):
        store.revoke("nobody")


def test_a_token_of_the_config_can_be_revoked(two):
    store, other = two
    store.revoke_hash(HASH, "deploy")
    assert store.is_revoked(bytes.fromhex("ab" * 32))
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
    """Somebody deletes the file, or the row."""
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
    assert not TokenStore(other._documents).guards  # after a restart, on one machine
    assert TokenStore(other._documents, is_closed=True).guards


def test_what_was_seen_revoked_stays_so_when_the_row_is_gone_or_an_older_one(two):
    store, other = two
    text = store.add("ci")
    older = store._documents.read(DOCUMENT)
    store.revoke("ci")
    store.revoke_hash(token_hash("of the config"), "bo")
    until(lambda: other.is_revoked(token_digest("of the config")))
    deleted(store)
    until(lambda: other.view().stamp is None)
    assert other.is_revoked(token_digest("of the config"))
    store._documents.write(DOCUMENT, older)
    until(lambda: other.view().stamp is not None)
    assert (other.find(token_digest(text)), other.is_revoked(token_digest(text))) == (None, True)


# Files that do not count


def others_read(file):
    file.chmod(0o640)


def others_write(file):
    file.chmod(0o602)


def link(file):
    file.rename(file.with_name("real"))
    file.symlink_to(file.with_name("real"))


def folder(file):
    file.unlink()
    file.mkdir(0o700)


def cut(file):
    file.write_bytes(file.read_bytes()[:-7])


def empty(file):
    file.write_bytes(b"")


def newer(file):
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))


def short_hash(file):
    content = json.loads(file.read_text())
    content["tokens"][0]["hash"] = "sha256:"
    file.write_text(json.dumps(content))


def another_role(file):
    content = json.loads(file.read_text())
    content["tokens"][0]["role"] = "root"
    file.write_text(json.dumps(content))


def deep(file):
    file.write_text("[" * 100_000)


DAMAGES = [others_read, others_write, link, folder, cut, empty, newer, short_hash, another_role, deep]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_file_that_does_not_count_lets_nobody_in_and_says_so(damage, store, caplog):
    text = store.add("ci", "admin")
    assert store.find(token_digest(text))
    damage(store.file)
    before = written(store.file)
    for _ in range(3):
        assert store.find(token_digest(text)) is None
    assert store.find(bytes(32)) is None
    assert len([record for record in caplog.records if str(store.file) in record.getMessage()]) == 1
    assert str(store.file) in store.problem
    assert store.guards  # who shows nothing is not let in, either
    for ask in (store.list, lambda: store.named("ci"), lambda: store.add("x"), lambda: store.revoke("ci")):
        with pytest.raises(TokenStoreError, match="is not used, because"):
            ask()
    assert written(store.file) == before
    assert token_hash(text)[10:] not in caplog.text


def test_a_file_that_is_mended_counts_again(store):
    text = store.add("ci")
    store.file.chmod(0o644)
    assert store.find(token_digest(text)) is None
    assert "chmod 600" in store.problem
    store.file.chmod(0o600)
    assert store.find(token_digest(text))
    assert store.problem is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_does_not_count(store):
    text = store.add("ci")
    os.chown(store.file, 12345, -1)
    assert store.find(token_digest(text)) is None
    assert "belongs to somebody else" in store.problem


@pytest.mark.parametrize("how", ["draft", "lock", "folder"])
def test_what_cant_be_written_changes_nothing_and_is_told(how, store, monkeypatch, tmp_path):
    text = store.add("ci")
    before = store.file.read_bytes()

    def refuse(*_args, **_more):
        raise OSError(28, "No space left on device")

    if how == "draft":
        monkeypatch.setattr(documents, "draft_of", refuse)
    elif how == "lock":
        monkeypatch.setattr(documents.flock, "wait", lambda *_: False)
    else:
        store.file.parent.rename(tmp_path / "moved")
        store.file.parent.symlink_to(tmp_path / "moved")
    for act in (lambda: store.add("x"), lambda: store.revoke("ci"), lambda: store.revoke_hash(HASH, "y")):
        with pytest.raises(TokenStoreError, match=r"can't be written \(.+\): nothing was changed"):
            act()
    assert store.file.read_bytes() == before
    assert store.find(token_digest(text))


# A project's folder


def test_a_file_that_came_with_a_project_does_not_count(tmp_path):
    theirs = TokenStore(tmp_path / "theirs", key_file=tmp_path / "home" / "tokens.key")
    text = theirs.add("evil", "admin")
    plain = TokenStore(tmp_path / "plain")
    also = plain.add("evil", "admin")
    for file, shown in ((theirs.file, text), (plain.file, also)):
        mine = TokenStore(tmp_path / "mine", key_file=tmp_path / "me" / "tokens.key")
        mine.file.parent.mkdir(exist_ok=True)
        mine.file.write_bytes(file.read_bytes())
        mine.file.chmod(0o600)
        for _ in range(2):  # without a key, and with one
            assert mine.find(token_digest(shown)) is None
            assert "was not written by `onetool tokens` of this user" in mine.problem
            TokenStore(tmp_path / "elsewhere", key_file=tmp_path / "me" / "tokens.key").add(os.urandom(4).hex())
            mine.file.touch()
    assert theirs.find(token_digest(text)).name == "evil"


def test_the_key_of_projects_is_one_and_private(tmp_path):
    key = tmp_path / "me" / "tokens.key"
    for name in ("a", "b"):
        store = TokenStore(tmp_path / name, key_file=key)
        assert store.find(token_digest(store.add("ci")))
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.chmod(0o644)
    assert TokenStore(tmp_path / "a", key_file=key).problem.startswith(str(key))


# Many at once, and killed ones


WRITER = """
import sys
from pathlib import Path
from onetool.services.access_tokens import TokenStore
store = TokenStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    print(store.add(f"{sys.argv[2]}-{number}"), flush=True)
"""


def writer(folder, name, most):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(most)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_add_at_once_lose_nothing(tmp_path):
    processes = [writer(tmp_path / "access", name, 20) for name in ("a", "b", "c")]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    texts = [line.strip() for process in processes for line in process.communicate()[0].splitlines()]
    store = TokenStore(tmp_path / "access")
    assert len(texts) == len(store.list()) == 60
    assert all(store.find(token_digest(text)) for text in texts)


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path):
    told = []
    for round in range(5):
        process = writer(tmp_path / "access", f"r{round}", 10_000)
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        for _ in range(round * 3 + 1):
            told.append(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        process.communicate()
    store = TokenStore(tmp_path / "access")
    assert all(store.find(token_digest(text)) for text in told)
    assert store.find(token_digest(store.add("after")))  # the lock ended with its holder


def test_a_question_costs_a_stat_and_no_more(store, monkeypatch):
    digests = [token_digest(store.add(f"t{number}")) for number in range(50)]
    assert store.find(digests[0])
    monkeypatch.setattr(documents, "read_private", None)  # who reads the file fails
    assert all(store.find(digest) for digest in digests)
    assert store.find(bytes(32)) is None
    print(f"{timeit(lambda: store.find(digests[25]), number=20_000) / 20_000 * 1e6:.2f} µs")


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
    for number in range(MOST_PRINCIPALS + 10):
        rates.check(caller(1, 60, f"n{number}"))
    assert len(rates._windows) == MOST_PRINCIPALS
    assert rates.check(caller(1, 60, f"n{MOST_PRINCIPALS}")) is not None


def test_clocks_are_real_where_none_is_given(tmp_path):
    before = time.time()
    store = TokenStore(tmp_path / "access")
    store.add("ci")
    assert before - 1 < store.named("ci").created < time.time() + 1
    assert RequestRates().check(caller(1, 60)) is None


def test_tokens_of_before_keep_a_server_closed_and_let_nobody_in(tmp_path):
    former = TokenStore(tmp_path / "former")
    store = TokenStore(tmp_path / "now", former=former)
    assert not store.guards
    text = former.add("ci")
    assert store.guards
    assert store.find(token_digest(text)) is None


def test_a_sealed_file_elsewhere_is_not_called_damaged(tmp_path):
    sealed = TokenStore(tmp_path / "tokens", key_file=tmp_path / "key")
    sealed.add("ci")
    with pytest.raises(TokenStoreError, match="sealed for the folder of a project"):
        TokenStore(tmp_path / "tokens").list()
