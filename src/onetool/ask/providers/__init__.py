"""What each provider of models calls things. Pure: nothing here sends anything, so that all of it is tried with texts.

An adapter knows one API: what a prompt looks like there, and what its answers, streams and refusals say.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

from onetool.ask.errors import ModelError
from onetool.ask.messages import Delta, Prompt, Reply

NAMES = ("openai", "ollama", "gemini", "anthropic")


class Request(NamedTuple):
    """`path` comes after the base URL. `body` may hold msgspec.Raw. Without one it is a GET."""

    path: str
    body: Mapping[str, Any] | None = None


class Reader(Protocol):
    """Reads one streamed answer. Made for one prompt."""

    def feed(self, event: Any) -> Iterable[Delta]:
        """What one event says (JSON, read already). Raises ModelError where it tells of an error."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that this is all. A stream that ends before that has broken off."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing at all can follow any more: not even how many tokens it took."""
        ...

    def reply(self) -> Reply:
        """All of it, as far as it has come."""
        ...


class Adapter(Protocol):
    name: str
    base_url: str  # where it is, unless the config says otherwise; without a slash at the end
    model: str | None  # the one that is used where nobody names one
    key: str  # what its API key is called among the secrets
    stream: Literal["events", "lines"]  # Server-Sent Events, or a JSON object in each line

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        """Those that carry the key, and those that the API wants always. Content-Type is set elsewhere."""
        ...

    def request(self, prompt: Prompt, stream: bool) -> Request: ...

    def reply(self, body: Any, prompt: Prompt) -> Reply:
        """What a whole answer says. Raises ModelError (reason garbled) where it is none."""
        ...

    def reader(self, prompt: Prompt) -> Reader: ...

    def failure(self, status: int, body: Any) -> ModelError:
        """What an answer that is no 2xx says. `body` is JSON, read already, or the text. No hints needed for
        unauthorized, model_not_found: whoever sent it knows more."""
        ...

    def models_request(self) -> Request: ...

    def models(self, body: Any) -> list[str]:
        """The names in a list of models: those that can chat, and the newest first, where that is told."""
        ...


@cache
def adapter(name: str) -> Adapter:
    """The adapter of that name; its module is loaded when it is first wanted."""
    return import_module(f"onetool.ask.providers.{name}").ADAPTER
