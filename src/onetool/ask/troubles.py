"""What went wrong between us and a provider, in words that say what to do. Keys are in none of them.

An adapter says what its provider said. What is said here is what only the sender knows: where that was, how often it
was tried, what the key is called.
"""

import os
from collections.abc import Iterable, Iterator
from errno import ECONNREFUSED
from typing import TYPE_CHECKING

from onetool.ask.errors import ModelError
from onetool.ask.place import Place
from onetool.core.errors import ToolFailure
from onetool.core.secrecy import MASK
from onetool.handlers.http.faults import Garbled, NotConnected, TooLarge, TooLate, WireFailure
from onetool.handlers.http.shown import LOOKED_AT, in_short

if TYPE_CHECKING:
    from onetool.ask.providers import Adapter
    from onetool.handlers.http.wire import Answer

LONGEST = 1000  # characters of a message
EXCERPT = 200  # characters of what is no answer
SHORTEST_KEY = 8  # local servers are given keys like `none` or `ollama`: words that are no secrets
MOST_NAMES = 8  # models that are told
_FAMILIES = {"claude": "anthropic", "gemini": "gemini", "gpt": "openai"}


class Troubles:
    """Of one model, at one place."""

    def __init__(self, adapter: "Adapter", model: str, place: Place, key: str | None) -> None:
        self._adapter, self._model, self._place, self._key = adapter, model, place, key
        self._hidden = key if key and len(key) >= SHORTEST_KEY else None

    def without_key(self, body: bytes) -> bytes:
        """What a refusal says: some repeat what they were given. Before it is cut, for half a key can't be found."""
        return body.replace(self._hidden.encode(), MASK.encode()) if self._hidden else body

    def masked(self, text: str, most: int = LONGEST) -> str:
        """On one line, and without the key."""
        return in_short(text.replace(self._hidden, MASK) if self._hidden else text, most)

    def of_fault(self, fault: ToolFailure) -> ModelError:
        """What our own client says."""
        where = self._place.authority
        if isinstance(fault, TooLarge):
            return ModelError(f"the answer of {where} is larger than anybody could read", "garbled")
        if isinstance(fault, TooLate) and not isinstance(fault, NotConnected):
            return ModelError(str(fault), "timeout")
        reason = "garbled" if isinstance(fault, Garbled) else "unreachable"
        again = isinstance(fault, WireFailure) and fault.again and not self._is_not_running(fault)
        return ModelError(str(fault), reason, fault.hints, again=again)

    def _is_not_running(self, fault: WireFailure) -> bool:
        """Nobody listens on this machine: that is told at once, and does not change within seconds."""
        return self._place.is_loopback and str(fault).endswith(f": {os.strerror(ECONNREFUSED)}")

    def of_no_json(self, answer: "Answer") -> ModelError:
        """Of an answer that says it is fine, and is something else: mostly a page."""
        begins = self.masked(answer.body[:LOOKED_AT].decode("utf-8", "replace"), EXCERPT) or "(nothing)"
        hint = f"is {self._place.text} really the place of this API? ({self._place.setting})"
        return ModelError(f"{self._place.authority} answered with what is no JSON: {begins}", "garbled", [hint])

    def of_redirect(self, answer: "Answer", path: str) -> ModelError:
        from urllib.parse import urljoin

        here = self._place.url(path).text
        location = answer.headers.get("location", "").strip()
        try:
            there = urljoin(here, location) if location else ""
        except ValueError:
            there = location
        words = f"{self._place.authority} answered {answer.status}, which leads to {there or 'nowhere'}"
        base = there.removesuffix(path)
        hint = f"redirects are not followed: if that is where it is, set {self._place.setting} to {base}"
        return ModelError(words, "unreachable", [hint] if there else (), status=answer.status)

    def retold(
        self, error: ModelError, *, tries: int = 1, broke_off: bool = False, models: Iterable[str] = ()
    ) -> ModelError:
        """The same with everything that is known here."""
        text = str(error)
        if broke_off:
            text = f"the answer broke off: {text}"
        if tries > 1:
            text += f" (tried {tries} times)"
        hints = error.hints if broke_off else dict.fromkeys((*error.hints, *self._hints(error, list(models))))
        return ModelError(
            self.masked(text),
            error.reason,
            [self.masked(hint) for hint in hints],
            status=error.status,
            again=error.again,
            wait=error.wait,
            window=error.window,
        )

    def _hints(self, error: ModelError, models: list[str]) -> Iterator[str]:
        """What to do."""
        if error.wait:
            yield f"it asks to be tried again in {_duration(error.wait)}"
        match error.reason:
            case "unauthorized":
                yield self._about_key()
            case "model_not_found":
                yield from self._about_model(models)
            case "overloaded" if not error.wait:
                yield f"it was asked at {self._place.text}; try again later, or another model"
            case "unreachable" if error.status is None:
                yield self._about_place()
            case "quota":
                yield f"waiting does not help: see the billing page of {self._adapter.name}, or use another --provider"
            case "too_long":
                yield "--new-session begins with nothing; --menu run shows the model one tool in place of all"
            case "timeout":
                yield "ask.timeout_s in the config sets how long a model may take for one step"
            case "bad_request" if error.status == 404 and not self._is_own:
                yield f"{self._place.setting} is {self._place.text}"

    @property
    def _is_own(self) -> bool:
        return self._place.text == self._adapter.base_url

    def _about_key(self) -> str:
        name, provider = self._adapter.key, self._adapter.name
        if self._key is None and provider == "ollama" and self._is_own:
            return f"{name} is sent only where OLLAMA_HOST or ask.base_url names the place"
        if self._key is None:
            return f"there is no {name}: `onetool auth set {provider}` keeps one"
        return f"the key that was sent is {name}: `onetool auth set {provider}` sets another one"

    def _about_model(self, models: list[str]) -> Iterator[str]:
        from onetool.core.nearest import did_you_mean

        wanted = self._model
        family = next((name for begin, name in _FAMILIES.items() if wanted.startswith(begin)), None)
        if models:
            question = did_you_mean(wanted, models)
            some = ", ".join(models[:MOST_NAMES]) + (", …" if len(models) > MOST_NAMES else "")
            yield f"--model names another one: {question or f'there are {some}'}"
        else:
            yield "--model, or ask.model in the config, names another one"
        if family is not None and family != self._adapter.name and self._is_own:
            yield f"{wanted} is a model of another provider: --provider {family}"

    def _about_place(self) -> str:
        name, place = self._adapter.name, self._place
        if place.is_loopback:
            start = ": `ollama serve` starts it" if name == "ollama" else ""
            return f"is it running? {name} is expected at {place.text}{start}"
        if self._is_own:
            return f"is there a way to {place.authority} from here? {place.setting} can name another place"
        return f"{place.setting} is {place.text}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    from datetime import datetime, timedelta

    try:
        then = datetime.now().astimezone() + timedelta(seconds=seconds)
    except OverflowError:
        return "a very long time"
    how_long = f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
    return f"{how_long}, at {then:%H:%M}" + (f" on {then:%Y-%m-%d}" if seconds > 43_200 else "")
