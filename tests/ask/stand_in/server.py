"""The stand-in's server: which request is whose, whether it is let in, and what comes back."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import count
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from ask.stand_in.script import Act, Breaks, Fails, Hangs, Raw, Says
from ask.stand_in.seen import Seen
from ask.stand_in.wire import Wire, compact
from upstream import CLOSE, Upstream
from upstream import Seen as Bytes

from onetool.core.model_providers import PROVIDERS

WIRES: dict[str, Wire] = {name: import_module(f"ask.stand_in.{name}") for name in PROVIDERS}
MODELS = ["stand-in", "stand-in-small"]
JSON = {"Content-Type": "application/json"}


class Refused(NamedTuple):
    seen: Seen
    why: Fails


class StandIn:
    """`keys`: whether requests need a key. `strict`: refuse, too, what only some models or plans refuse.
    `models`: those that are there; else any name will do. `cut`: streams come in chunks of so many bytes."""

    def __init__(
        self, *, keys: bool = True, strict: bool = False, models: Sequence[str] | None = None, cut: int | None = None
    ) -> None:
        self.seen: list[Seen] = []  # what the model was asked, refused or not …
        self.others: list[Seen] = []  # … and everything else: lists of models, say
        self.refused: list[Refused] = []
        self._keys, self._strict, self._models, self.cut = keys, strict, models, cut
        self._script: list[Act | Callable[[Seen], Act]] = [Says("Hello.")]
        self._numbers = count()
        self._lock = threading.Lock()
        self._upstream = Upstream(self._answer)
        self.url = self._upstream.url
        self.urls = {name: self.url + wire.BASE for name, wire in WIRES.items()}

    def will(self, *acts: Act | Callable[[Seen], Act]) -> None:
        """One for each request, the last one for all that follow."""
        with self._lock:
            self._script = list(acts)

    def __enter__(self) -> Self:
        self._upstream.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._upstream.__exit__()

    def _answer(self, raw: Bytes) -> Iterator[bytes | float | object]:
        seen, wire = self._read(raw), WIRES[_provider(raw)]
        is_chat = seen.method == "POST" and wire.is_chat(seen.path)
        with self._lock:
            (self.seen if is_chat else self.others).append(seen)
        why = self._refusal(seen, wire, is_chat)
        if why is not None:
            with self._lock:
                self.refused.append(Refused(seen, why))
            return self._act(why, seen, wire)
        if is_chat:
            return self._act(self._next(seen), seen, wire)
        return self._act(self._lookup(seen, wire), seen, wire)

    def _read(self, raw: Bytes) -> Seen:
        parts = urlsplit(raw.target)
        path, provider = unquote(parts.path), _provider(raw)
        try:
            body = json.loads(raw.body) if raw.body else None
        except ValueError:
            body = None
        about = WIRES[provider].about(path, body if isinstance(body, dict) else {})
        query = dict(parse_qsl(parts.query))
        return Seen(provider, raw.method, path, query, raw.headers, body, next(self._numbers), *about)

    def _refusal(self, seen: Seen, wire: Wire, is_chat: bool) -> Fails | None:
        keyless = wire.keyless(seen) if self._keys else None
        if keyless is not None or not is_chat:
            return keyless
        if not seen.headers.get("content-type", "").startswith("application/json"):
            return Fails(415, f"Unsupported media type: {seen.headers.get('content-type')!r}.")
        if not isinstance(seen.body, dict):
            return Fails(400, "We could not parse the JSON body of your request.")
        if self._models is not None and seen.model and seen.model not in self._models:
            return wire.unknown(seen.model)
        return next(wire.problems(seen, self._strict), None)

    def _next(self, seen: Seen) -> Act:
        with self._lock:
            act = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return act(seen) if callable(act) else act

    def _lookup(self, seen: Seen, wire: Wire) -> Raw | Fails:
        found = wire.other(seen, list(self._models or MODELS))
        if found is None:
            found = Fails(404, f"Invalid URL ({seen.method} {seen.path})")
        if isinstance(found, Fails):
            with self._lock:
                self.refused.append(Refused(seen, found))
            return found
        return Raw(200, JSON, found)

    def _act(self, act: Act, seen: Seen, wire: Wire) -> Iterator[bytes | float | object]:
        match act:
            case Hangs(seconds):
                yield seconds
                yield CLOSE
            case Raw():
                yield _head(act.status, {**act.headers, "Content-Length": str(len(act.data))}) + act.data
            case Fails():
                headers = (
                    {}
                    if act.retry_after is None or wire is WIRES["gemini"]
                    else {"Retry-After": f"{act.retry_after:g}"}
                )
                yield from self._act(Raw(act.status, {**JSON, **headers}, wire.error(act, seen)), seen, wire)
            case Breaks(after=None):
                yield CLOSE
            case Breaks():
                yield from self._broken(act, seen, wire)
            case _:
                yield from self._said(Says(act) if isinstance(act, str) else act, seen, wire)

    def _said(self, says: Says, seen: Seen, wire: Wire) -> Iterator[bytes | float | object]:
        if seen.stream:
            yield _head(200, {"Content-Type": wire.STREAM, "Transfer-Encoding": "chunked"})
            yield from self._chunks(says.delay, wire.events(says, seen))
            yield b"0\r\n\r\n"
            return
        if says.delay:
            yield says.delay
        whole = wire.whole(says, seen)
        yield from self._act(whole if isinstance(whole, Fails) else Raw(200, JSON, compact(whole)), seen, wire)

    def _broken(self, breaks: Breaks, seen: Seen, wire: Wire) -> Iterator[bytes | float | object]:
        if not seen.stream:
            data = compact(wire.whole(breaks.says, seen))
            yield _head(200, {**JSON, "Content-Length": str(len(data))}) + data[: len(data) // 2]
            yield CLOSE
            return
        events = list(wire.events(breaks.says, seen))[: breaks.after]
        if breaks.error is not None:
            events.append(wire.error_event(breaks.error, seen))
        yield _head(200, {"Content-Type": wire.STREAM, "Transfer-Encoding": "chunked"})
        yield from self._chunks(breaks.says.delay, iter(events))
        yield b"0\r\n\r\n" if breaks.tidy or breaks.error is not None else CLOSE

    def _chunks(self, delay: float, events: Iterator[bytes]) -> Iterator[bytes | float]:
        """Each event as a chunk of its own; or all of them, cut where nothing ends."""
        if self.cut:
            data, size = b"".join(events), self.cut
            events = (data[at : at + size] for at in range(0, len(data), size))
        for event in events:
            if delay:
                yield delay
            yield b"%x\r\n%b\r\n" % (len(event), event)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} ", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _provider(raw: Bytes) -> str:
    """Return whose request it is. Three of them have their list of models in one place: the headers tell."""
    path = urlsplit(raw.target).path
    return next((name for name, wire in WIRES.items() if wire.is_own(path, raw.headers)), "openai")
