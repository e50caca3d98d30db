"""Who calls, and what it may do: a principal has a role and a rate, and an allow-list says which tools it may call.

The HTTP server finds out who a request comes from and sets `current_principal` for its task; the person who runs the
process is `LOCAL`. Whatever is stored for somebody has an owner, which is a text that no two principals share.
A plain collection of names is an allow-list, too, and None is one that allows everything.
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
"""From the one that may least to the one that may all: each may what those before it may."""


class Rate(msgspec.Struct, frozen=True):
    """At most `count` requests in `seconds`."""

    count: int
    seconds: float


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls. `name` is for people, `owner` is stored with what belongs to it; both are empty for the local user."""

    name: str = ""
    owner: str = ""
    role: Role = "call"
    tools: tuple[str, ...] | None = None  # names and patterns of tools that it may call; None: all
    rate: Rate | None = None
    expires: float | None = None  # seconds since 1970
    whole: bool = True  # may get large results whole, and not only by a handle
    shares_local_state: bool = False  # who came with http.token: what stays is the local user's
    is_capped: bool = False  # its role is less than its token's, because the server is for calls only

    @property
    def lasting_owner(self) -> str:
        """The owner of what stays: sessions of `ask`, examples, stats. The local user and `http.token` share these."""
        return "" if self.shares_local_state else self.owner

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Principal(role="admin")
"""The person who runs the process: the command line, stdio, Python code."""
OWNER = Principal(name="(owner)", role="admin")
"""That person on the page, who came by a link. No token has this name; the command line owns what is stored."""

current_principal: ContextVar[Principal] = ContextVar("onetool_current_principal", default=LOCAL)
is_admitted: ContextVar[Callable[[], bool]] = ContextVar("onetool_is_admitted", default=lambda: True)
"""Whether the caller of the current request would still be let in: for what goes on when the request is over."""
current_address: ContextVar[str] = ContextVar("onetool_current_address", default="")
"""Where a request comes from: the address of a client over HTTP, else empty."""


def owner() -> str:
    """Return the owner of what is stored now, and is forgotten after a while: results, tasks, questions."""
    return current_principal.get().owner


def lasting_owner() -> str:
    """Return the owner of what is stored now, and stays."""
    return current_principal.get().lasting_owner


def stats_caller(wanted: str | None = None) -> str | None:
    """Return the caller whose calls the stats may show: an admin's `wanted` (None for all), else the own owner.

    Their own has the form that it is kept in: one that looks like the kept form of another is not taken for it.
    """
    principal = current_principal.get()
    return wanted if principal.may("admin") else distinct_name(principal.lasting_owner)


# Which tools may be called


class AllowList(Collection[str]):
    """The tools that names and patterns such as `web.*` allow, of those that there are at one moment.

    A tool that is in no list, such as an older version (`web.get@1.0`), is allowed if its name fits.
    """

    __slots__ = ("_fits", "_names", "_within")

    def __init__(
        self, patterns: Collection[str], there: Collection[str], within: Collection[str] | None = None
    ) -> None:
        """Allow tools of `there`, and with `within` only those that it has, too."""
        self._fits = _matcher(tuple(patterns))
        self._within = within
        # A name may be that of a tool that is in no list, too.
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
    """Return a function that matches the names that are one of these, or fit one."""
    from fnmatch import translate

    whole = "|".join(translate(one) if is_pattern(one) else re.escape(one) + r"\Z" for one in patterns)
    return re.compile(whole or r"(?!)").match


def allowed_by_both(one: Collection[str] | None, other: Collection[str] | None) -> Collection[str] | None:
    """Return the intersection of two allow-lists; None allows everything."""
    for names in (one, other):
        if isinstance(names, str):  # else `in` would look for parts of it
            raise TypeError(f"an allow-list is a list of names: [{names!r}]")
    if one is None or other is None:
        return other if one is None else one
    if one is other:  # of a tool and what it calls
        return one
    # Asked both ways: a list of patterns also holds names that it does not list, such as those of older versions.
    return frozenset([name for name in one if name in other] + [name for name in other if name in one])
