"""Tools that are declared in the config. A bad one is reported with its place in the file; the others work."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from onetool.core.definition import accept
from onetool.core.errors import DefinitionError, Mistake
from onetool.core.implementation import Handlers
from onetool.core.source import Catalogue, Source
from onetool.core.spec import ToolSpec


class Entry(msgspec.Struct, frozen=True):
    """A definition as somebody wrote it, with its place, so that a complaint can point there."""

    definition: Any
    file: str
    line: int
    index: int  # its place in the list of its own file
    mistakes: tuple[Mistake, ...] = ()


class DeclaredTools(Source):
    """Definitions from the config -> tools."""

    name = "config"

    def __init__(self, entries: Iterable[Entry], builtins: Handlers, internals: Handlers) -> None:
        self._entries = tuple(entries)
        self._builtins = builtins
        self._internals = internals

    def load(self) -> Catalogue:
        tools: list[ToolSpec] = []
        mistakes: list[Mistake] = []
        for entry in self._entries:
            if entry.mistakes:
                mistakes += entry.mistakes
                continue
            try:
                spec = accept(entry.definition, self._builtins, self._internals)
                tools.append(replace(spec, defined_in=f"{entry.file}:{entry.line}"))
            except DefinitionError as error:
                mistakes.append(_mistake(entry, error))
        return Catalogue(tools=tuple(tools), mistakes=tuple(mistakes))


def _mistake(entry: Entry, error: DefinitionError) -> Mistake:
    key = f"tools[{entry.index}]" + (f" ({error.tool})" if error.tool else "")
    return Mistake(message=str(error), file=entry.file, line=entry.line, key=key, hint=error.hint)
