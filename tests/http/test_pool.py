"""The pool of connections: whoever waits for one may stop waiting at any moment."""

import asyncio

import pytest

from onetool.http.pool import ConnectionPool


class Dialled:
    """Looks like a connection."""

    since = 0.0

    def is_free(self):
        return True

    def end(self):
        pass


async def dial():
    return Dialled()


def test_who_waits_in_vain_is_told(monkeypatch):
    async def main():
        pool = ConnectionPool(asyncio.get_running_loop(), 1)
        held = await pool.acquire("a", dial)
        with pytest.raises(TimeoutError):
            await pool.acquire("a", dial, 0.02)
        pool.release(held)
        assert await pool.acquire("a", dial, 0.02) is held

    asyncio.run(main())


def test_one_is_returned_in_the_moment_in_which_who_waits_is_cancelled():
    async def main():
        pool = ConnectionPool(asyncio.get_running_loop(), 1)
        held = await pool.acquire("a", dial)
        waiting = asyncio.create_task(pool.acquire("a", dial))
        await asyncio.sleep(0)
        waiting.cancel()
        pool.release(held)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pool.acquire_idle("a") is held

    asyncio.run(main())
