"""What a scripted model does with one request. Names of calls are as the wire has them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Wants:
    """One call. Without an `id`, one is made up where the API always gives one, and left out where it need not.

    `raw` stands where the arguments should, malformed. Ollama and Gemini read calls themselves: there it becomes the
    failure that these make of it.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None

    @property
    def text(self) -> str:
        return json.dumps(self.args, ensure_ascii=False) if self.raw is None else self.raw


@dataclass(frozen=True)
class Says:
    """`stop` is the API's own word, or "length" or "refused", which are put into its words. `usage` is (input, output),
    or with a third number: how much of the input was cached. `delay` is seconds before each event."""

    text: str = ""
    calls: Sequence[Wants] = ()
    stop: str | None = None
    usage: tuple[int, ...] = (11, 7)
    thinking: str | None = None
    pieces: int = 3
    delay: float = 0.0

    @property
    def input(self) -> int:
        return self.usage[0]

    @property
    def output(self) -> int:
        return self.usage[1]

    @property
    def cached(self) -> int:
        return self.usage[2] if len(self.usage) > 2 else 0

    @property
    def malformed(self) -> str | None:
        """The first call's that is."""
        return next((call.raw for call in self.calls if call.raw is not None), None)

    def word(self, words: Mapping[str, str], done: str, tools: str) -> str:
        """Why it stopped, in an API's word."""
        if self.stop:
            return words.get(self.stop, self.stop)
        return tools if self.calls else done

    def cut(self, text: str | None) -> Iterator[str]:
        """The text in that many pieces, as even as can be; fewer where it is short."""
        text = text or ""
        size = max(1, -(-len(text) // max(1, self.pieces)))
        yield from (text[at : at + size] for at in range(0, len(text), size))


@dataclass(frozen=True)
class Fails:
    """An error in the provider's own shape. `kind` is its name there: OpenAI's code, Anthropic's type, Gemini's status.

    `param` is what OpenAI says it is about.
    """

    status: int
    message: str = "Something is wrong."
    kind: str | None = None
    retry_after: float | None = None
    param: str | None = None


@dataclass(frozen=True)
class Breaks:
    """The connection is cut after so many events of a stream; None: before anything is said. With `error`, the stream
    tells of it as the provider does, and then ends. `tidy`: it ends as if that were all. What is not streamed is cut in
    half."""

    after: int | None = 2
    says: Says = Says("This is as far as it goes, and no further.", pieces=6)
    error: Fails | None = None
    tidy: bool = False


@dataclass(frozen=True)
class Hangs:
    """Nothing comes for so long; then the connection ends."""

    seconds: float


@dataclass(frozen=True)
class Raw:
    """Anything else. A body that is neither bytes nor text is sent as JSON."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = b""

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


Act = str | Says | Fails | Breaks | Hangs | Raw
