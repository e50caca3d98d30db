"""What can go wrong between us and a server that wants to know who we are. Nothing here ever holds a token."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onetool.core.errors import OneToolError


class AuthFailed(OneToolError):  # noqa: N818 - it says what happened, not what kind of thing it is
    """It can't be proven who we are, for a reason that is told. A login may mend it, or time."""


class NeedsLogin(AuthFailed):
    """A person has to log in. In the background nobody is asked; this is said instead."""

    def __init__(self, name: str, why: str = "wants a login", scopes: str = "") -> None:
        self.server = name
        self.scopes = tuple(scopes.split())
        self.command = f"onetool servers login {shlex.quote(name)}"
        super().__init__(f"the server {name} {why}: {self.command}")


class Watch:
    """What was found out about one piece of work."""

    trouble: AuthFailed | None = None


_watch: ContextVar[Watch | None] = ContextVar("onetool_auth_watch", default=None)


@contextmanager
def watching() -> Iterator[Watch]:
    """Requests that are sent in here say into the watch why they were not let through.

    A connection is of no use without a login, and ends with the error itself. A single call that wants more rights than
    the others must not end them: it gets a response that says nothing, and the reason stands here.
    """
    watch = Watch()
    before = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(before)


def note(trouble: AuthFailed) -> None:
    if (watch := _watch.get()) is not None:
        watch.trouble = trouble


def trouble_in(error: BaseException) -> AuthFailed | None:
    """The reason, where a connection ended because of it: task groups wrap what was raised in them."""
    if isinstance(error, AuthFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := trouble_in(inner)) is not None), None)
    return None
