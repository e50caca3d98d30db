"""What is said between a person, a model and tools, in one form. Every provider's adapter turns it into its own.

Names of tools are the real ones here. `kept` is what only its provider understands (signatures of thoughts, say): it is
given back to the same provider as it came, and to no other.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.toolset import NO_TOOLS, Toolset

Stop = Literal["end", "tools", "length", "refused", "other"]
"""Why a model stopped: it was done, wants tools, ran out of room, would or could not answer, or something else."""


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody attached: a text, or a picture as base64."""

    name: str
    kind: str = "text/plain"  # its media type
    text: str | None = None
    data: str | None = None


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="user"):
    text: str
    files: tuple[File, ...] = ()


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the model wants called. `malformed` is what came where an object of arguments should be."""

    id: str
    name: str  # the real name; of a tool that is not there, what the model wrote
    args: Mapping[str, Any] = {}
    malformed: str | None = None
    kept: Mapping[str, Any] = {}


class Assistant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant"):
    text: str = ""
    calls: tuple[Call, ...] = ()
    provider: str = ""  # who understands `kept`, here and in the calls
    kept: Mapping[str, Any] = {}
    broken_off: bool = False  # it was not let finish


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="result"):
    """What came of one call, as the model reads it. `value` is there where it may be used again."""

    call: str  # the call's id
    name: str
    content: str
    ok: bool = True
    value: Any | UnsetType = UNSET


Message = User | Assistant | Result


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, as the provider counts them. `cached` are those of the input that it had at hand."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input, output=self.output + other.output, cached=self.cached + other.cached
        )


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """All that a model is given for one step.

    After an Assistant with calls there is one Result for each of these, in their order, before anything else.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: Toolset = NO_TOOLS
    may_call: bool = True  # False: `tools` only say how to spell what was called before; the request has none
    temperature: float | None = None
    max_tokens: int | None = None  # of the answer
    context_tokens: int | None = None  # the window, for providers that have to be told
    tokens: int | None = None  # about how many all of this is, where somebody has counted

    @property
    def offers_tools(self) -> bool:
        """Whether the request has tools in it."""
        return self.may_call and bool(self.tools)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said in one step. Ids of calls are as the provider gave them: empty where it gave none."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    why: str = ""  # the provider's own word or words for that, where `stop` is refused or other
    usage: Usage = Usage()
    kept: Mapping[str, Any] = {}


class Said(msgspec.Struct, frozen=True):
    """A piece of the answer, as it comes."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """A piece of what the model thinks before it answers, where its provider tells that."""

    text: str


Delta = Said | Thought
