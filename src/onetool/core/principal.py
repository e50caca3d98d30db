"""Principals and allow-lists: the caller with its role and rate, and the tools that it may call. The HTTP server
authenticates each request and sets `current_principal` for its task; the user who runs the process is `LOCAL`.

Stored data has an owner, a string that is unique to each principal. A plain collection of names is an allow-list, too;
None allows everything.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal

import msgspec

from onetool.core.text import distinct_name

Role = Literal["call", "edit", "admin"]
ROLES: tuple[Role, ...] = ("call", "edit", "admin")
"""In ascending order: each role includes the permissions of the roles before it."""


class Rate(msgspec.Struct, frozen=True):
    """At most `count` requests in `seconds`."""

    count: int
    seconds: float


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller. `name` is shown to users, `owner` is stored with the principal's data.

    Both are empty for the local user. Callers without a credential have no name, and share the owner LOCAL_CALLER.
    """

    name: str = ""
    owner: str = ""
    role: Role = "call"
    tools: tuple[str, ...] | None = None  # names and patterns of permitted tools; None: all
    rate: Rate | None = None
    expires: float | None = None  # seconds since 1970
    whole: bool = True  # gets large results in full, not only a handle
    shares_local_state: bool = False  # used http.token: permanent data belongs to the local user
    is_capped: bool = False  # the role is below the token's, because the server is for calls only

    @property
    def caller(self) -> str:
        """The key of the principal in fair shares and rates; all clients without a credential are one caller."""
        return self.name if self.shares_local_state else self.owner or self.name

    @property
    def lasting_owner(self) -> str:
        """The owner of permanent data: `ask` sessions, examples, stats. The local user and `http.token` share these."""
        return "" if self.shares_local_state else self.owner

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of temporary data that the principal may use, its own first.

        The local user and `http.token` may use what callers without a credential have stored.
        """
        return (self.owner,) if self.lasting_owner else (self.owner, LOCAL_CALLER)

    @property
    def lasting_owners(self) -> tuple[str, ...]:
        """The same for permanent data."""
        return (self.lasting_owner, *self.owners[1:])

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_CALLER = "(local)"
"""The owner of what callers without a credential store. No name of a token or user is like this."""
LOCAL = Principal(role="admin")
"""The person who runs the process: the command line, stdio, Python code."""
OWNER = Principal(name="(owner)", role="admin")
"""The same person on the web page, signed in by a link. Tokens can't have this name. Stored data has the owner of
LOCAL.
"""

current_principal: ContextVar[Principal] = ContextVar("onetool_current_principal", default=LOCAL)
is_admitted: ContextVar[Callable[[], bool]] = ContextVar("onetool_is_admitted", default=lambda: True)
"""Whether the caller of the current request is still authorised. Checked by work that continues after the request."""
current_address: ContextVar[str] = ContextVar("onetool_current_address", default="")
"""The client's address for requests over HTTP, else empty."""


def owner() -> str:
    """Return the owner for temporary data: results, tasks, questions."""
    return current_principal.get().owner


def owners() -> tuple[str, ...]:
    """Return the owners of the temporary data that the caller may use, its own first."""
    return current_principal.get().owners


def lasting_owner() -> str:
    """Return the owner for permanent data."""
    return current_principal.get().lasting_owner


def lasting_owners() -> tuple[str, ...]:
    """Return the owners of the permanent data that the caller may use, its own first."""
    return current_principal.get().lasting_owners


def stats_caller(wanted: str | None = None) -> str | None:
    """Return the owner whose calls the stats may show: for admins `wanted` (None for all), else the caller's own.

    The caller's own is returned in stored form, so that an owner can't pass for another one's stored form.
    """
    principal = current_principal.get()
    return wanted if principal.may("admin") else distinct_name(principal.lasting_owner)


# Which tools may be called


class AllowList(Collection[str]):
    """The current tools that match names and patterns such as `web.*`.

    Unlisted tools, such as older versions (`web.get@1.0`), are allowed if their name matches.
    """

    __slots__ = ("_fits", "_names", "_within")

    def __init__(
        self, patterns: Collection[str], there: Collection[str], within: Collection[str] | None = None
    ) -> None:
        """Allow matching tools of `there`, restricted to those in `within`, if given."""
        self._fits = _matcher(tuple(patterns))
        self._within = within
        # Names may also be those of unlisted tools.
        further = (name for name in patterns if not is_pattern(name) and name not in there)
        self._names = tuple(name for name in (*there, *further) if name in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or self._fits(name) is None:
            return False
        return self._within is None or name in self._within

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


@lru_cache(256)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches names that are equal to, or match, one of the patterns."""
    from fnmatch import translate

    whole = "|".join(translate(one) if is_pattern(one) else re.escape(one) + r"\Z" for one in patterns)
    return re.compile(whole or r"(?!)").match


def allowed_by_both(one: Collection[str] | None, other: Collection[str] | None) -> Collection[str] | None:
    """Return the intersection of two allow-lists; None allows everything."""
    for names in (one, other):
        if isinstance(names, str):  # else `in` would search for substrings
            raise TypeError(f"an allow-list is a list of names: [{names!r}]")
    if one is None or other is None:
        return other if one is None else one
    if one is other:  # the usual case for nested calls
        return one
    # Both directions: an allow-list also contains names that it does not list, such as older versions.
    return frozenset([name for name in one if name in other] + [name for name in other if name in one])
