"""Events wait for a thread, within limits, and the thread lets calls go first."""

import threading
from time import perf_counter

import pytest
from helpers import until

from onetool.services.journal import recorder as recorders
from onetool.services.journal.recorder import Recorder


@pytest.fixture
def recorder():
    recorder = Recorder()
    yield recorder
    recorder.close()


def work(seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


def test_the_thread_lets_others_have_the_lock_after_a_short_time(recorder, monkeypatch):
    """Meanwhile it holds the GIL, and calls wait."""
    pauses = []
    monkeypatch.setattr(recorders, "sleep", lambda seconds: pauses.append((seconds, len(done))))
    done = []
    for number in range(8):
        recorder.put(lambda number: (work(recorders.HELD_S * 1.1), done.append(number)), number)
    until(lambda: len(done) == 8)
    recorder.flush()
    assert done == [*range(8)]
    assert [count for _, count in pauses] == [*range(1, 9)]
    assert {seconds for seconds, _ in pauses} == {recorders.PAUSE_S}


def test_quick_events_are_handled_without_a_pause_for_each(recorder, monkeypatch):
    pauses, done = [], []
    monkeypatch.setattr(recorders, "sleep", pauses.append)
    for number in range(1000):
        recorder.put(done.append, number)
    recorder.flush()
    assert done == [*range(1000)]
    assert len(pauses) < 500


def test_events_are_handled_in_their_order_by_themselves(recorder):
    done = []
    for number in range(100):
        recorder.put(done.append, number)
    until(lambda: len(done) == 100)
    assert done == [*range(100)]


@pytest.mark.attack("event queue")
def test_the_newest_events_beyond_a_number_are_lost(recorder, monkeypatch):
    monkeypatch.setattr(recorders, "MAX_WAITING", 50)
    done = []
    with recorder._handling:  # the thread is busy
        for number in range(80):
            recorder.put(done.append, number)
    recorder.flush()
    assert (done, recorder.lost) == ([*range(50)], 30)


@pytest.mark.attack("event queue")
def test_large_events_are_limited_by_their_bytes(recorder, monkeypatch):
    monkeypatch.setattr(recorders, "MAX_BYTES", 1000)
    done = []
    with recorder._handling:
        for number in range(10):
            recorder.put(done.append, number, size=300)
        recorder.put(done.append, "small", size=10)
    recorder.flush()
    assert done == [0, 1, 2, "small"]
    for number in range(3):  # the bytes have been given back
        recorder.put(done.append, number, size=300)
    recorder.flush()
    assert len(done) == 7


def test_after_its_end_a_recorder_still_takes_events(recorder):
    done = []
    recorder.put(done.append, "before")
    recorder.close()
    assert done == ["before"]
    until(lambda: not any(thread.name == "onetool-events" for thread in threading.enumerate()))
    recorder.put(done.append, "after")
    until(lambda: done == ["before", "after"])


def test_a_thread_without_events_ends_and_comes_back(recorder, monkeypatch):
    monkeypatch.setattr(recorders, "IDLE_S", 0.01)
    done = []
    for number in range(3):
        recorder.put(done.append, number)
        until(lambda: not any(thread.name == "onetool-events" for thread in threading.enumerate()))
    assert done == [0, 1, 2]


def test_many_threads_lose_nothing(recorder):
    done = []

    def put():
        for number in range(500):
            recorder.put(done.append, number)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.flush()
    assert (len(done), recorder.lost) == (4000, 0)


def test_reading_waits_for_events_that_another_thread_handles(recorder):
    done, can_go_on = [], threading.Event()
    recorder.put(can_go_on.wait, 10)
    recorder.put(done.append, "earlier")
    until(lambda: len(recorder.waiting) == 1)
    threading.Timer(0.1, can_go_on.set).start()
    recorder.flush()
    assert done == ["earlier"]


@pytest.mark.attack("event queue")
@pytest.mark.parametrize("error", [ValueError, SystemExit, MemoryError, RecursionError])
def test_an_event_that_fails_stops_no_other_and_does_not_end_the_thread(recorder, error, caplog):
    done = []

    def fail() -> None:
        raise error("odd")

    for _ in range(3):
        recorder.put(fail)
        recorder.put(done.append, 1)
        recorder.put(recorder.flush)  # one that asks for what it comes to
        until(lambda: recorder._thread is not None and not recorder.waiting)
    until(lambda: len(done) == 3)
    assert "could not be recorded" in caplog.text


@pytest.mark.attack("event queue")
def test_a_writer_that_always_fails_keeps_no_other_from_writing(recorder, monkeypatch, caplog):
    monkeypatch.setattr(recorders, "RETRY_S", 0.01)
    written = []
    recorder.writers += [lambda is_last: 1 / 0, lambda is_last: written.append(is_last)]
    recorder.put(int)
    until(lambda: written)
    recorder.close()
    assert written[-1] is True
    assert "events could not be written" in caplog.text
