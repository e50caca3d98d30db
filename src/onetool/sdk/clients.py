"""`lazy_client`: a client that is made when it is first needed, once, whoever asks first."""

from collections.abc import Callable
from inspect import iscoroutine
from threading import RLock
from typing import TypeVar

from onetool.sdk.context import get_secret

C = TypeVar("C")


def lazy_client(factory: Callable[[], C], secret_name: str | None = None) -> Callable[[], C | None]:
    """A function that gives the client: the first call makes it, all others get the same one, in every thread.

    A factory that raises is tried again by the next call. With `secret_name` the answer is None, and nothing is made,
    as long as there is no such secret. The factory is a plain function, for async clients too
    (`lambda: httpx.AsyncClient()`): what has to be awaited belongs to one event loop, and is not for everybody.
    """
    made: list[C] = []  # a list and not a None to compare with: a factory may well give None
    lock = RLock()  # a factory that asks for its own client gets a RecursionError; with a plain lock it would hang

    def get_client() -> C | None:
        if made:
            return made[0]
        if secret_name is not None and not get_secret(secret_name):
            return None
        with lock:
            if not made:
                made.append(_new(factory))
            return made[0]

    return get_client


def _new(factory: Callable[[], C]) -> C:
    client = factory()
    if iscoroutine(client):
        client.close()  # else Python warns that nobody awaited it
        raise TypeError("lazy_client takes a plain function that returns the client, not an async one")
    return client
