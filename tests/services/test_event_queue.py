"""Events wait for a thread, within limits that one caller can't use up for others."""

import threading

import pytest
from helpers import until

from onetool.database import DatabaseError
from onetool.services import event_queue
from onetool.services.event_queue import EventQueue, Recorder


class Place:
    """Takes events, unless it is away."""

    def __init__(self):
        self.events = []
        self.is_away = False
        self.queue = EventQueue("test-events", self.handle, gather_s=0.01)

    def handle(self, events):
        while events:
            if self.is_away:
                raise DatabaseError("away")
            self.events.append(events.popleft())


@pytest.fixture
def place():
    place = Place()
    yield place
    place.queue.close()


def test_the_thread_handles_few_events_at_once():
    """Meanwhile it holds the GIL, and calls wait."""
    sizes = []

    def handle(events):
        sizes.append(len(events))
        events.clear()

    queue = EventQueue("test-events", handle, gather_s=0.2)
    for number in range(10 * event_queue.BATCH):
        queue.put(number)
    until(lambda: sum(sizes) == 10 * event_queue.BATCH)
    assert sizes == [event_queue.BATCH] * 10
    sizes.clear()
    for number in range(100 * event_queue.BATCH):
        queue.put(number)
    until(lambda: sum(sizes) == 100 * event_queue.BATCH)
    assert len(sizes) < 2 * event_queue.BATCH  # a flood does not wait for a hundred pauses
    queue.close()


def put_away(place, limit):
    place.queue.flush()
    place.is_away, place.queue.max_waiting = True, limit


def test_events_are_handled_in_their_order_by_themselves(place):
    for number in range(100):
        place.queue.put(number)
    until(lambda: len(place.events) == 100)
    assert place.events == [*range(100)]


@pytest.mark.attack("event queue")
def test_a_flood_of_one_caller_costs_no_other_one_an_event(place):
    put_away(place, 100)
    for number in range(500):
        place.queue.put(("flood", number), "flood")
        if number % 10 == 0:
            place.queue.put(("other", number), "other")
    place.is_away = False
    place.queue.flush()
    assert [number for who, number in place.events if who == "other"] == [*range(0, 500, 10)]
    assert place.queue.lost.keys() == {"flood"}
    assert place.queue.lost["flood"] + len(place.events) == 550


@pytest.mark.attack("event queue")
def test_several_floods_share_what_there_is(place):
    put_away(place, 90)
    for number in range(200):
        for who in ("one", "two", "three"):
            place.queue.put((who, number), who)
    place.is_away = False
    place.queue.flush()
    shares = [sum(1 for name, _ in place.events if name == who) for who in ("one", "two", "three")]
    assert min(shares) >= 25
    assert sum(place.queue.lost.values()) == 600 - len(place.events)


@pytest.mark.attack("event queue")
def test_many_callers_with_one_event_each_push_nobody_out(place):
    put_away(place, 50)
    for number in range(80):
        place.queue.put(number, str(number))
    place.is_away = False
    place.queue.flush()
    assert place.events == [*range(50)]


@pytest.mark.attack("event queue")
def test_large_events_are_limited_by_their_bytes(place, monkeypatch):
    monkeypatch.setattr(event_queue, "MAX_BYTES", 1000)
    put_away(place, 100)
    for number in range(10):
        place.queue.put(number, "large", 300)
    place.queue.put("small", "other", 10)
    place.is_away = False
    place.queue.flush()
    assert place.events == [0, 1, 2, "small"]
    for number in range(3):  # the bytes have been given back
        place.queue.put(number, "large", 300)
    place.queue.flush()
    assert len(place.events) == 7


@pytest.mark.attack("event queue")
def test_large_events_that_are_being_handled_cost_no_other_caller_an_event(monkeypatch):
    monkeypatch.setattr(event_queue, "MAX_BYTES", 1000)
    handled = []

    def handle(events):
        if not handled:
            queue.put("small", "other", 10)
        handled.extend(events)
        events.clear()

    queue = EventQueue("test-events", handle)
    queue.put("large", "flood", 1000)
    queue.flush()
    queue.close()
    assert handled == ["large", "small"]
    assert not queue.lost


def test_what_can_not_be_handled_is_kept_and_tried_again(place, monkeypatch):
    monkeypatch.setattr(event_queue, "RETRY_S", 0.01)
    place.is_away = True
    place.queue.put("one")
    with pytest.raises(DatabaseError):
        place.queue.flush("last")
    place.is_away = False
    until(lambda: place.events == ["one"])


def test_after_its_end_a_queue_still_takes_events(place):
    place.queue.put("before")
    place.queue.close()
    assert place.events == ["before"]
    until(lambda: not any(thread.name == "test-events" for thread in threading.enumerate()))
    place.queue.put("after")
    until(lambda: place.events == ["before", "after"])


def test_a_thread_without_events_ends_and_comes_back(place, monkeypatch):
    monkeypatch.setattr(event_queue, "IDLE_S", 0.01)
    for number in range(3):
        place.queue.put(number)
        until(lambda: not any(thread.name == "test-events" for thread in threading.enumerate()))
    assert place.events == [0, 1, 2]


def test_many_threads_lose_nothing(place):
    def put():
        for number in range(500):
            place.queue.put(number)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place.queue.flush()
    assert len(place.events) == 4000
    assert not place.queue.lost


@pytest.mark.attack("event queue")
def test_an_event_that_fails_stops_no_other(caplog):
    recorder, seen = Recorder(), []
    recorder.put((lambda: 1 / 0, ()))
    recorder.put((seen.append, (1,)))
    recorder.put((recorder.flush, ()))  # one that asks for what it comes to
    recorder.flush()
    assert seen == [1]
    assert "could not be recorded" in caplog.text
