"""`TokenCache` keeps access tokens in memory until they expire.

There is one fetch at a time for each set of credentials, however many calls wait for it, on whatever loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from threading import Lock
from time import monotonic
from typing import NamedTuple

from onetool.core.errors import ToolFailure
from onetool.http.errors import with_message

MARGIN = 30.0  # seconds before its end that a token is no longer used
SHORTEST_LIFE = 1.0  # seconds between two tokens for the same credentials, but for one that is fetched anew at once
MOST_KEPT = 1_000

Key = tuple[str, ...]


class FetchedToken(NamedTuple):
    access: str
    life: float  # seconds
    refresh: str | None = None  # the one to use from now on


class _CachedToken(NamedTuple):
    access: str
    since: float
    until: float
    refresh: str | None
    hurried: bool  # less than that since the one before it


class _Abandoned(Exception):  # noqa: N818 - whoever fetched has been cancelled: somebody else has to
    pass


class TokenCache:
    """The cache of access tokens of an app."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._tokens: dict[Key, _CachedToken] = {}
        self._fetches: dict[Key, Future[None]] = {}

    async def get(
        self, key: Key, fetch: Callable[[str | None], Awaitable[FetchedToken]], refused: str | None = None
    ) -> str:
        """A token that is valid for a while, and not the refused one. `fetch` takes a newer refresh token, if any."""
        while True:
            with self._lock:
                cached = self._tokens.get(key)
                if cached is not None and cached.access != refused and self._clock() < cached.until:
                    return cached.access
                pending = self._fetches.get(key)
                if pending is None:
                    if not self.may_fetch(key):
                        raise _too_often()
                    mine = self._fetches[key] = Future()
                    break
            try:
                await asyncio.shield(asyncio.wrap_future(pending))
            except _Abandoned:
                continue
            except ToolFailure as error:
                raise with_message(error, str(error)) from None
        return await self._fetch(key, fetch, cached, mine)

    def may_fetch(self, key: Key) -> bool:
        """False if the last two tokens came within a second: another one would be refused, too."""
        cached = self._tokens.get(key)
        return cached is None or not cached.hurried or self._clock() >= cached.since + SHORTEST_LIFE

    async def _fetch(
        self,
        key: Key,
        fetch: Callable[[str | None], Awaitable[FetchedToken]],
        cached: _CachedToken | None,
        mine: "Future[None]",
    ) -> str:
        refresh = cached.refresh if cached else None
        try:
            fetched = await fetch(refresh)
        except BaseException as error:
            with self._lock:
                del self._fetches[key]
            mine.set_exception(error if isinstance(error, ToolFailure) else _Abandoned())
            raise
        life = max(fetched.life - min(MARGIN, fetched.life / 10), SHORTEST_LIFE)
        now = self._clock()
        hurried = cached is not None and now < cached.since + SHORTEST_LIFE
        with self._lock:
            self._tokens.pop(key, None)
            self._tokens[key] = _CachedToken(fetched.access, now, now + life, fetched.refresh or refresh, hurried)
            if len(self._tokens) > MOST_KEPT:
                del self._tokens[next(iter(self._tokens))]
            del self._fetches[key]
        mine.set_result(None)
        return fetched.access


def _too_often() -> ToolFailure:
    return ToolFailure(
        "no access token: the last one was fetched less than a second ago, and it was refused",
        reason="upstream_error",
        hints=("the API does not accept what tokenUrl gives: check clientId and scope in the tool's auth",),
    )
