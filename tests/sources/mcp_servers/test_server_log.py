"""What is kept of what a server says: by lines, masked, and never too much."""

import os
import stat
from threading import Thread

import pytest

from onetool.sources.mcp_servers import server_log as module
from onetool.sources.mcp_servers.server_log import ServerLog


@pytest.fixture
def file(tmp_path):
    return tmp_path / "servers" / "one.log"


@pytest.fixture
def journal(file):
    return ServerLog("one", file, lambda text: text.replace("sesame", "***"))


def told(journal, most=100):
    """Without the time, which is 19 characters and a space."""
    return [line[20:] for line in journal.lines(most)]


def test_lines_are_put_together_however_they_come(journal):
    for piece in (b"one\ntw", b"o\nth", b"ree", b""):
        journal.write_stderr(piece)
    assert told(journal) == ["one", "two"]
    journal.end_stderr()
    journal.end_stderr()
    assert told(journal) == ["one", "two", "three"]
    assert journal.last_lines() == "one / two / three"
    assert journal.last_lines(1) == "three"


def test_our_own_words_are_marked_and_are_not_its(journal):
    journal.note("connected")
    journal.write_stray(b"Listening on stdio")
    assert told(journal) == ["-- connected", "(on standard output) Listening on stdio"]
    assert "connected" not in journal.last_lines()


def test_secrets_and_control_characters_are_masked(journal, file):
    journal.write_stderr(b"the key is sesame\x1b[31m\n\xff\xfe\r\n")
    journal.note("its key is sesame")
    kept = file.read_text()
    assert "sesame" not in kept
    assert "\x1b" not in kept
    assert told(journal)[0].startswith("the key is ***")
    assert "sesame" not in journal.last_lines()


def test_a_line_has_an_end_even_where_it_has_none(journal):
    for _ in range(100):
        journal.write_stderr(b"x" * 1000)
    journal.end_stderr()
    assert all(len(line) <= module.MAX_LINE for line in told(journal, 1000))
    assert len(journal.words) <= module.IN_MEMORY


def test_the_file_stays_small_and_keeps_the_end(journal, file, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 2000)
    for n in range(500):
        journal.write_stderr(f"line {n}\n".encode())
    assert sum(one.stat().st_size for one in file.parent.iterdir()) <= 4000
    assert len(list(file.parent.glob("one.log*"))) == 2
    assert told(journal, 3) == ["line 497", "line 498", "line 499"]
    assert told(ServerLog("one", file, str), 1) == ["line 499"]  # another process sees the same
    if os.name == "posix":
        assert {stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()} == {0o600}


def test_there_may_be_nothing_and_nowhere_to_write(journal, tmp_path):
    assert journal.lines(10) == []
    (tmp_path / "servers").write_text("a file where a folder should be")
    journal.note("it goes on")
    journal.write_stderr(b"all the same\n")
    assert journal.lines(10) == []
    assert journal.last_lines() == "all the same"


def test_many_threads(journal):
    threads = [Thread(target=lambda: [journal.note(f"word {n}") for n in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told(journal, 1000)) == 400
