"""Clients that are made once, when they are needed."""

import threading

import pytest

from onetool.sdk.http import lazy_client


def test_exactly_one_construction_under_100_threads():
    made, got = [], []
    start = threading.Barrier(100)
    slow = threading.Event()

    def factory():
        made.append(object())
        slow.wait(0.05)  # all the others arrive meanwhile
        return made[-1]

    client = lazy_client(factory)

    def ask():
        start.wait()
        got.append(client())

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert got == made * 100


def test_a_factory_that_raises_is_tried_again():
    outcomes = iter([ConnectionError("down"), "client"])

    def factory():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    client = lazy_client(factory)
    with pytest.raises(ConnectionError, match="down"):
        client()
    assert client() == "client"
    assert client() == "client"


def test_a_failing_factory_lets_each_of_many_threads_try():
    tries, failed = [], []

    def factory():
        tries.append(1)
        raise ConnectionError

    client = lazy_client(factory)

    def ask():
        try:
            client()
        except ConnectionError:
            failed.append(1)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(tries) == len(failed) == 10


def test_a_missing_secret_is_looked_up_again(monkeypatch):
    monkeypatch.delenv("CLIENT_KEY", raising=False)
    client = lazy_client(object, secret_name="CLIENT_KEY")
    assert client() is None
    monkeypatch.setenv("CLIENT_KEY", "")
    assert client() is None
    monkeypatch.setenv("CLIENT_KEY", "abc")
    first = client()
    assert first is not None
    monkeypatch.delenv("CLIENT_KEY")
    assert client() is first


def test_a_factory_may_give_none_and_is_still_called_once():
    calls = []
    client = lazy_client(lambda: calls.append(1))
    assert client() is None
    assert client() is None
    assert calls == [1]


def test_a_factory_that_asks_for_its_own_client_does_not_hang():
    client = lazy_client(lambda: client())
    with pytest.raises(RecursionError):
        client()


def test_an_async_factory_is_refused():
    async def factory():
        return object()

    with pytest.raises(TypeError, match="sync function"):
        lazy_client(factory)()
