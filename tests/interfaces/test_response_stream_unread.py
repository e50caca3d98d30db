"""A response whose client does not read: it is bounded, and it ends."""

import asyncio

import pytest

from onetool.http import response_stream
from onetool.http.response_stream import MAX_UNSENT, ResponseStream
from onetool.interfaces.rest import ask_app


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(response_stream, "UNREAD_S", 0.01)
    monkeypatch.setattr(ask_app, "UNREAD_S", 0.01)


async def never(_message):
    await asyncio.Event().wait()


async def nothing_yet(message):
    if message["type"] == "http.response.body":
        await asyncio.Event().wait()


def test_what_is_told_by_the_way_is_dropped_and_counted():
    async def main():
        response = ResponseStream(never)
        for _ in range(3000):
            response.push_event(b"x" * 1024, droppable=True)
        try:
            return response.dropped, response._size
        finally:
            response.drop()

    dropped, kept = asyncio.run(main())
    assert dropped > 1500
    assert kept <= MAX_UNSENT + 1024


def test_a_client_that_takes_nothing_gets_no_more(impatient):
    async def main():
        response = ResponseStream(nothing_yet)
        response.push_event(b"one")
        await response.end()
        return response

    response = asyncio.run(asyncio.wait_for(main(), 20))
    assert response.is_unread
    assert not response._unsent


def test_a_model_does_not_write_on_for_who_does_not_read(impatient):
    async def main():
        response = ask_app.PacedResponseStream(nothing_yet)
        while True:
            await response.push_paced(b"x" * 100_000)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
