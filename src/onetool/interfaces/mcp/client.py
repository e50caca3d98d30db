"""What is known of whoever sent a message: from its `initialize`, or from the `_meta` of the message itself."""

from collections.abc import Mapping
from time import monotonic
from typing import Any

import msgspec

from onetool.core.caller import Level
from onetool.interfaces.mcp.revisions import (
    CLIENT_CAPABILITIES,
    HANDSHAKE,
    LEVELS,
    LOG_LEVEL,
    META,
    MODERN,
    PROTOCOL_VERSION,
    TASKS,
)
from onetool.interfaces.mcp.wire import INVALID_PARAMS, UNSUPPORTED_VERSION, Fault

CLIENT_INFO = f"{META}clientInfo"
LONGEST_NAME = 100


class Peer:
    """The same one for all that comes over one conversation. It knows how long the client is silent between calls."""

    __slots__ = ("_answered", "_under_way")

    def __init__(self) -> None:
        self._answered: float | None = None
        self._under_way = 0

    def calls(self) -> float | None:
        """A call has come: the seconds since the last one was answered, if nothing has been under way since."""
        silent_since = None if self._under_way else self._answered
        self._under_way += 1
        self._answered = None
        return None if silent_since is None else monotonic() - silent_since

    def gets(self, answer: bool) -> None:
        """A call is over. Where the client has got no answer, what it does next is not for that."""
        self._under_way -= 1
        self._answered = monotonic() if answer else None


class Client(msgspec.Struct, kw_only=True):
    """A client at the other end. `owner` is to whom belongs what is stored for it, `name` what it says it is called."""

    revision: str = HANDSHAKE[0]
    capabilities: Mapping[str, Any] = {}
    log_level: Level | None = "info"
    owner: str = ""
    name: str = ""
    menu: str | None = None  # the one it chose, if it did
    peer: Peer = msgspec.field(default_factory=Peer)

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN

    def can(self, what: str) -> bool:
        """Whether it has declared a capability, or an extension by its id."""
        if not self.capabilities:
            return False
        if "/" in what:
            extensions = self.capabilities.get("extensions")
            return isinstance(extensions, Mapping) and what in extensions
        found = self.capabilities.get(what)
        if what == "elicitation" and isinstance(found, Mapping) and found:
            return "form" in found  # one that can only send people to a web page can't show a form
        return isinstance(found, Mapping)

    def wants(self, level: Level) -> bool:
        return self.log_level is not None and LEVELS.index(level) >= LEVELS.index(self.log_level)


def in_short(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of them we go by. The rest is not kept: a client may send megabytes, and a session lasts."""
    if not capabilities:
        return capabilities
    known: dict[str, Any] = {name: {} for name in ("sampling", "roots") if isinstance(capabilities.get(name), dict)}
    if isinstance(asking := capabilities.get("elicitation"), dict):
        known["elicitation"] = {way: {} for way in ("form", "url") if way in asking}
    if isinstance(extensions := capabilities.get("extensions"), dict):
        known["extensions"] = {TASKS: {}} if TASKS in extensions else {}
    return known


def name_in(info: Any) -> str:
    """The name in a `clientInfo`, as far as it can be shown: it comes from outside."""
    name = info.get("name") if isinstance(info, dict) else None
    if not isinstance(name, str):
        return ""
    return "".join(filter(str.isprintable, name[: 2 * LONGEST_NAME])).strip()[:LONGEST_NAME]


def is_modern(meta: Any) -> bool:
    """Whether a message says itself what it needs to say, and so stands alone."""
    return isinstance(meta, dict) and (PROTOCOL_VERSION in meta or CLIENT_CAPABILITIES in meta)


def from_meta(meta: Any, owner: str = "", menu: str | None = None) -> Client:
    """The client behind a message of 2026-07-28."""
    if not isinstance(meta, dict):
        raise Fault(
            INVALID_PARAMS, f"params._meta is missing: it must have {PROTOCOL_VERSION} and {CLIENT_CAPABILITIES}"
        )
    version, capabilities = meta.get(PROTOCOL_VERSION), meta.get(CLIENT_CAPABILITIES)
    for key, value, kind in ((PROTOCOL_VERSION, version, str), (CLIENT_CAPABILITIES, capabilities, dict)):
        if not isinstance(value, kind):
            what = "is missing" if value is None else f"must be {'a text' if kind is str else 'an object'}"
            raise Fault(INVALID_PARAMS, f"params._meta[{key!r}] {what}")
    if version not in MODERN:
        data = {"supported": list(MODERN), "requested": version}
        raise Fault(UNSUPPORTED_VERSION, f"protocol version {version:.40} is not supported here", data)
    level = meta.get(LOG_LEVEL)
    if level is not None and level not in LEVELS:
        raise Fault(INVALID_PARAMS, f"params._meta[{LOG_LEVEL!r}] must be one of {', '.join(LEVELS)}")
    return Client(
        revision=version,
        capabilities=in_short(capabilities or {}),
        log_level=level,
        owner=owner,
        name=name_in(meta.get(CLIENT_INFO)),
        menu=menu,
    )
