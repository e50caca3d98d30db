"""The adapters of model providers: how each API writes prompts, replies, streams and errors.

Each module is a provider, by its name; modules with an underscore in front are what these share. An adapter is pure: it
sends nothing, so tests need only texts.
"""

from collections.abc import Iterable, Mapping
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
    """Reads the streamed reply to one prompt."""

    def feed(self, event: Any) -> Iterable[Delta]:
        """Read one event (as JSON). Raises ModelError where it tells of an error."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that this is all. A stream that ends before that has broken off."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing at all can follow any more: not even how many tokens it took."""
        ...

    def reply(self) -> ModelReply:
        """Return the reply, as far as it has come."""
        ...


class Adapter(Protocol):
    name: str
    base_url: str  # where it is, unless the config says otherwise; without a slash at the end
    model: str | None  # the one that is used where nobody names one
    rank: int | None  # its turn among the stored keys where nobody names a provider; None: it needs no key
    stream: Literal["events", "lines"]  # Server-Sent Events, or a JSON object in each line

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        """Return the headers with the key, and those that the API always wants. Content-Type is set elsewhere."""
        ...

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest: ...

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        """Read a whole answer. Raises ModelError (reason garbled) if it is invalid."""
        ...

    def reader(self, prompt: ModelPrompt) -> ReplyReader: ...

    def failure(self, status: int, body: Any) -> ModelError:
        """Return the error of an answer that isn't 2xx. `body` is data, or the text. `unauthorized` and
        `model_not_found` need no hints: the sender knows more."""
        ...

    def models_request(self) -> ProviderRequest: ...

    def models(self, body: Any) -> list[str]:
        """Return the names in a list of models: those that can chat, newest first if the list says so."""
        ...


@cache
def adapter(name: str) -> Adapter:
    """Return the adapter of that name; its module is loaded when it is first wanted."""
    return import_module(f"onetool.ask.providers.{name}").ADAPTER


def ranked_providers() -> list[str]:
    """Return the providers that need a key, in the order in which their keys are looked for."""
    ranks = {name: rank for name in PROVIDERS if (rank := adapter(name).rank) is not None}
    return sorted(ranks, key=ranks.__getitem__)
