"""Adapters of model providers: the formats of prompts, replies, streams and errors in each API.

Each module is named after its provider; modules with a leading underscore are shared. Adapters do no I/O, so tests need
no server.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

from onetool.ask.errors import ModelError
from onetool.ask.messages import Delta, ModelPrompt, ModelReply
from onetool.core.model_providers import PROVIDERS


class ProviderRequest(NamedTuple):
    """A request to a provider: POST with a body, else GET. `path` follows the base URL; `body` may hold msgspec.Raw."""

    path: str
    body: Mapping[str, Any] | None = None


class ReplyReader(Protocol):
    """A reader of the streamed reply to one prompt."""

    def feed(self, event: Any) -> Iterable[Delta]:
        """Read one event, parsed from JSON. Raises ModelError if the event is an error."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the provider has marked the reply as complete. A stream that ends earlier was cut off."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can follow, not even token counts."""
        ...

    def reply(self) -> ModelReply:
        """Return the reply as received so far."""
        ...


class Adapter(Protocol):
    """The adapter of an API. Bearer tokens and server-sent events, which most APIs use, are the defaults."""

    name: str
    base_url: str  # the default URL, without a trailing slash
    model: str | None  # the default model
    models_path: str  # of the list of models
    reader: Callable[[ModelPrompt], ReplyReader]
    rank: int | None  # priority among providers with stored keys if none is named; None: needs no key
    stream: Literal["events", "lines"] = "events"  # server-sent events, or JSON lines

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        """Return the headers for the key and the API, without Content-Type."""
        return [("Authorization", f"Bearer {key}")] if key else []

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest: ...

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        """Read a whole answer. Raises ModelError (garbled) if it is invalid."""
        ...

    def failure(self, status: int, body: Any) -> ModelError:
        """Return the error for a response that isn't 2xx. `body` is JSON data or text. The sender adds hints for
        `unauthorized` and `model_not_found`.
        """
        ...

    def models(self, body: Any) -> list[str]:
        """Return the names in a list of models: those that can chat, newest first if the list says so."""
        ...


@cache
def adapter(name: str) -> Adapter:
    """Return the adapter of a provider. Its module is imported on first use."""
    return import_module(f"onetool.ask.providers.{name}").ADAPTER


def ranked_providers() -> list[str]:
    """Return the providers that need a key, by priority."""
    ranks = {name: rank for name in PROVIDERS if (rank := adapter(name).rank) is not None}
    return sorted(ranks, key=ranks.__getitem__)
