"""Sessions by themselves: what makes one invalid, who shares the key, and what is left where nothing can be written."""

import base64
import json
from hashlib import sha256
from threading import Thread

import pytest
from document_stores import database, database_url, in_home, places, postgres
from helpers import until

from onetool.core.redaction import mask_credentials
from onetool.core.signed import sign
from onetool.database import DatabaseError, documents
from onetool.interfaces.http import login_sessions
from onetool.interfaces.http.login_sessions import LIFETIME_S, PREFIX, LoginSessions
from onetool.services import page_sessions

__all__ = ["database", "database_url", "places", "postgres"]

TOKEN, OTHER = sha256(b"sesame").digest(), sha256(b"other").digest()


def named(token):
    """Whatever name is asked for: the token has it now."""
    return lambda _name: token


class Clock:
    def __init__(self):
        self.now = 1_800_000_000.5

    def __call__(self):
        return self.now


def refuse(*_args, **_more):
    raise PermissionError(13, "Permission denied")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(tmp_path, clock):
    return LoginSessions(in_home(tmp_path / "login", "page_sessions"), clock)


@pytest.fixture
def two(places, clock):
    """The sessions of SQLite, then of PostgreSQL, as two processes have them."""
    return tuple(LoginSessions(places("page_sessions", "at once"), clock) for _ in range(2))


def test_a_session_is_valid_for_its_token_until_it_expires(two, clock):
    sessions, _ = two
    text, session = sessions.start(TOKEN)
    assert text.startswith(PREFIX)
    assert sessions.read(text, named(TOKEN)) == session
    assert session.expires == int(clock.now) + LIFETIME_S == int(clock.now) + 12 * 3600
    assert sessions.read(text, named(OTHER)) is None
    clock.now = session.expires - 0.1
    assert sessions.read(text, named(TOKEN)) == session
    clock.now = session.expires
    assert sessions.read(text, named(TOKEN)) is None


def test_two_sessions_differ_and_one_is_ended_alone(two):
    sessions, _ = two
    (first, one), (second, other) = sessions.start(TOKEN), sessions.start(TOKEN)
    assert (first != second, one.id != other.id) == (True, True)
    sessions.end(one)
    assert (sessions.read(first, named(TOKEN)), sessions.read(second, named(TOKEN))) == (None, other)


def test_who_has_not_the_key_makes_none(sessions):
    text, session = sessions.start(TOKEN)
    data = base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "==")[16:]
    assert json.loads(data)["expires"] == session.expires  # it can be read, and not be changed
    later = json.dumps({**json.loads(data), "expires": session.expires + 10**6}).encode()
    forged = [PREFIX + sign(key, body, b"login session:") for key in (b"", TOKEN, b"x" * 32) for body in (data, later)]
    mac = base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "==")[:16]
    forged += [PREFIX + base64.urlsafe_b64encode(mac + later).decode().rstrip("=")]
    forged += [
        text[:-1],
        text + "=",
        text + "A",
        text.upper(),
        text.removeprefix(PREFIX),
        f"{PREFIX}{text}",
        PREFIX,
        "",
    ]
    forged += [PREFIX + "A" * 100_000, PREFIX + "é", text.replace("-", "+")[:-2] + "xx", f" {text}"]
    assert [one for one in forged if sessions.read(one, named(TOKEN)) is not None] == []


def test_the_token_can_not_be_guessed_from_a_session(sessions, tmp_path):
    text, _ = sessions.start(TOKEN)
    digest = json.loads(base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "==")[16:])["digest"]
    assert digest not in (TOKEN.hex(), sha256(b"token:" + TOKEN).hexdigest())
    elsewhere, _ = LoginSessions(in_home(tmp_path / "elsewhere", "page_sessions")).start(TOKEN)
    assert digest.encode() not in base64.urlsafe_b64decode(elsewhere.removeprefix(PREFIX) + "==")


def test_processes_share_the_key_and_what_was_ended(two, places, clock):
    sessions, other = two
    assert other.read(PREFIX + "A" * 200, named(TOKEN)) is None  # it has looked before anybody signed in
    text, session = sessions.start(TOKEN)
    assert until(lambda: other.read(text, named(TOKEN))) == session
    theirs, their_session = other.start(TOKEN)
    assert sessions.read(theirs, named(TOKEN)) == their_session
    other.end(session)
    assert other.read(text, named(TOKEN)) is None
    until(lambda: sessions.read(text, named(TOKEN)) is None)
    third = LoginSessions(places("page_sessions", "at once"), clock)
    assert third.read(text, named(TOKEN)) is None  # also after a start
    assert sessions.read(theirs, named(TOKEN)) == third.read(theirs, named(TOKEN)) == their_session


def test_who_signs_in_at_once_at_two_for_the_first_time_gets_one_key(two):
    found = []
    work = [Thread(target=lambda one=one: found.append(one.start(TOKEN)[0])) for one in two]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    until(lambda: all(one.read(text, named(TOKEN)) for one in two for text in found))


@pytest.mark.long
@pytest.mark.parametrize("places", ["postgres"], indirect=True)
def test_while_the_database_is_away_sessions_stay_and_no_end_is_told_as_done(two, postgres):
    sessions, other = two
    text, session = sessions.start(TOKEN)
    assert other.read(text, named(TOKEN)) == session
    postgres.stop()
    try:
        assert sessions.read(text, named(TOKEN)) == other.read(text, named(TOKEN)) == session
        with pytest.raises(DatabaseError):
            sessions.end(session)
        assert sessions.read(text, named(TOKEN)) == session
    finally:
        assert postgres.start_again()
    until(lambda: _ends(sessions, session))
    until(lambda: other.read(text, named(TOKEN)) is None)


def _ends(sessions, session):
    try:
        sessions.end(session)
    except DatabaseError:
        return False
    return True


def kept(tmp_path):
    return in_home(tmp_path / "login", "page_sessions")


def test_nothing_is_written_before_somebody_signs_in(tmp_path, sessions):
    assert sessions.read(PREFIX + "A" * 200, named(TOKEN)) is None
    assert not (tmp_path / "login").exists()


def test_deleting_the_document_ends_all_sessions(tmp_path, sessions):
    text, _ = sessions.start(TOKEN)
    kept(tmp_path).delete("sessions")
    assert sessions.read(text, named(TOKEN)) is None
    again, session = sessions.start(TOKEN)
    assert (sessions.read(text, named(TOKEN)), sessions.read(again, named(TOKEN))) == (None, session)


@pytest.mark.attack("credentials")
def test_one_that_was_ended_stays_so_with_an_older_document(tmp_path, sessions):
    text, session = sessions.start(TOKEN)
    backup = kept(tmp_path).read("sessions")
    sessions.end(session)
    assert sessions.read(text, named(TOKEN)) is None
    kept(tmp_path).write("sessions", backup)
    assert sessions.read(text, named(TOKEN)) is None
    assert sessions.read(sessions.start(TOKEN)[0], named(TOKEN))


@pytest.mark.parametrize("body", [b"{", b"", b'{"key": "AAAA"}'])
def test_a_damaged_document_does_not_count(tmp_path, sessions, clock, body):
    text, _ = sessions.start(TOKEN)
    kept(tmp_path).write("sessions", body)
    fresh = LoginSessions(kept(tmp_path), clock)
    assert fresh.read(text, named(TOKEN)) is None
    new, session = fresh.start(TOKEN)
    assert (fresh.read(new, named(TOKEN)), fresh.read(text, named(TOKEN))) == (session, None)


def test_none_begins_where_nothing_can_be_written(tmp_path, clock):
    (tmp_path / "login").write_text("no folder")
    with pytest.raises(DatabaseError):
        LoginSessions(in_home(tmp_path / "login", "page_sessions"), clock).start(TOKEN)


def test_one_that_can_be_read_but_not_written_is_not_ended(sessions, monkeypatch):
    text, session = sessions.start(TOKEN)
    monkeypatch.setattr(documents, "write_row", refuse)
    with pytest.raises(DatabaseError):
        sessions.end(session)
    assert sessions.read(text, named(TOKEN)) == session
    more, other = sessions.start(TOKEN)  # the key is known
    assert sessions.read(more, named(TOKEN)) == other


def test_one_of_a_clock_that_was_ahead_does_not_count(sessions, clock):
    clock.now += 3600
    text, _ = sessions.start(TOKEN)
    clock.now -= 3600
    assert sessions.read(text, named(TOKEN)) is None


def test_a_lock_that_somebody_holds_keeps_nobody_out(tmp_path, sessions, monkeypatch):
    monkeypatch.setattr(login_sessions, "MAX_WAIT_S", 0.05)
    sessions.start(TOKEN)
    with kept(tmp_path).locked("sessions", 1):
        text, session = sessions.start(TOKEN)
        assert sessions.read(text, named(TOKEN)) == session


def test_what_is_remembered_is_bounded_and_none_comes_back(sessions, clock, monkeypatch, tmp_path):
    monkeypatch.setattr(page_sessions, "MAX_ENDED", 5)
    texts = []
    for _ in range(12):
        text, session = sessions.start(TOKEN)
        sessions.end(session)
        texts.append(text)
        clock.now += 1
    living, session = sessions.start(TOKEN)
    assert [text for text in texts if sessions.read(text, named(TOKEN))] == []
    assert sessions.read(living, named(TOKEN)) == session
    assert len(json.loads(kept(tmp_path).read("sessions"))["ended"]) <= 5
    clock.now += LIFETIME_S + 1
    _, last = sessions.start(TOKEN)
    sessions.end(last)
    assert list(json.loads(kept(tmp_path).read("sessions"))["ended"]) == [last.id]


def test_sessions_are_masked(sessions):
    text, _ = sessions.start(TOKEN)
    assert mask_credentials(f"GET /x/{text}?a={text}") == "GET /x/ots_***?a=ots_***"
    for harmless in ("/call/robots_management.list", "/call/ots_x", f"/call/b{text}"):
        assert mask_credentials(harmless) == harmless
    assert "***" in repr(sessions._state())
