"""What the protocols share."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard

from ask.stand_in.script import Fails, Says
from ask.stand_in.seen import Seen


class About(NamedTuple):
    """What a body says of itself."""

    stream: bool
    model: str
    tools: list[str]
    messages: list[Any]


class Wire(Protocol):
    """What each protocol's module has."""

    STREAM: str  # the content type of streams
    BASE: str  # the path of its base URL

    def is_own(self, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request is of this protocol. What nobody takes is OpenAI's."""
        ...

    def is_chat(self, path: str) -> bool: ...

    def about(self, path: str, body: Mapping[str, Any]) -> About: ...

    def keyless(self, seen: Seen) -> Fails | None:
        """How it refuses a request without a key."""
        ...

    def problems(self, seen: Seen, strict: bool) -> Iterator[Fails]:
        """What is wrong with a request; the first one is why it is refused."""
        ...

    def unknown(self, model: str) -> Fails:
        """There is no such model."""
        ...

    def whole(self, says: Says, seen: Seen) -> Any: ...

    def events(self, says: Says, seen: Seen) -> Iterator[bytes]: ...

    def error(self, fails: Fails, seen: Seen) -> Any: ...

    def error_event(self, fails: Fails, seen: Seen) -> bytes: ...

    def other(self, seen: Seen, models: list[str]) -> Any:
        """What its other paths say: the list of models, say. None: there is no such path. Or Fails."""
        ...


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def twice(names: Iterable[str]) -> str | None:
    """The first that comes a second time."""
    known: set[str] = set()
    for name in names:
        if name in known:
            return name
        known.add(name)
    return None


def one_of(text: str) -> frozenset[str]:
    return frozenset(text.split())
