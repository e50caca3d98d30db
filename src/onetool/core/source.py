"""Source: somewhere that tools come from. Sources list; tools run themselves."""

from typing import Protocol

import msgspec

from onetool.core.errors import Mistake
from onetool.core.offer import Prompt, Resource
from onetool.core.spec import ToolSpec


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What a source had to offer when it was asked, and what was wrong with the rest."""

    tools: tuple[ToolSpec, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


class Source(Protocol):
    """One place where tools come from. What is broken in it is reported, never raised: the rest still works."""

    name: str

    def load(self) -> Catalogue: ...
