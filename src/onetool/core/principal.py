"""Principal: who calls, what it may do, and whose things are stored.

The HTTP server finds out who a request comes from and sets `current_principal` for its task; the person who runs the
process is `LOCAL`. Whatever is stored for somebody has an owner, which is a text that no two principals share.
"""

from collections.abc import Callable
from contextvars import ContextVar
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
    shares_local_state: bool = False  # who came with http.token: what stays is the local user's
    is_capped: bool = False  # its role is less than its token's, because the server is for calls only

    @property
    def lasting_owner(self) -> str:
        """The owner of what stays: sessions of `ask`, examples, stats. The local user and `http.token` share these."""
        return "" if self.shares_local_state else self.owner

    def may(self, role: Role) -> bool:
        """Whether it may what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Principal(role="admin")
"""The person who runs the process: the command line, stdio, Python code."""

current_principal: ContextVar[Principal] = ContextVar("onetool_current_principal", default=LOCAL)
is_admitted: ContextVar[Callable[[], bool]] = ContextVar("onetool_is_admitted", default=lambda: True)
"""Whether the caller of the current request would still be let in: for what goes on when the request is over."""
current_address: ContextVar[str] = ContextVar("onetool_current_address", default="")
"""Where a request comes from: the address of a client over HTTP, else empty."""


def owner() -> str:
    """The owner of what is stored now, and is forgotten after a while: results, tasks, questions."""
    return current_principal.get().owner


def lasting_owner() -> str:
    """The owner of what is stored now, and stays."""
    return current_principal.get().lasting_owner


def stats_caller(wanted: str | None = None) -> str | None:
    """The caller whose calls the stats may tell of: an admin's `wanted`, None for all; for others their own owner.

    Their own has the form that it is kept in: one that looks like the kept form of another is not taken for it.
    """
    principal = current_principal.get()
    return wanted if principal.may("admin") else distinct_name(principal.lasting_owner)
