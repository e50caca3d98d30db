"""Packs: Python modules whose functions are tools, either built in, installed, or in the user's files and folders.

`importing` finds packs and imports them, with a time limit. `reading` reads the tools of a pack from its source code,
for packs that are slow to import, and for shell completion, which must not run packs.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from onetool.core.errors import Mistake
from onetool.core.registry import Catalogue, Source, ToolRegistry
from onetool.core.spec import Handler, Handlers, ToolSpec
from onetool.sdk.pack import pack_name, tools_of
from onetool.sources.packs.importing import (
    PackCandidate,
    PackImport,
    import_mistake,
    in_paths,
    installed,
    pack_modules,
    restore_modules,
)

BUILTIN = ("time", "tools", "shell", "fs")


@cache
def builtin_tools(pack: str) -> tuple[ToolSpec, ...]:
    return tools_of(import_module(f"onetool.packs.{pack}")).tools


class BuiltinFunctions(Mapping[str, Handler]):
    """A mapping from tool names to functions of the built-in packs. Looking up a name imports its pack."""

    def __getitem__(self, name: str) -> Handler:
        pack = name.partition(".")[0]
        if pack in BUILTIN:
            for spec in builtin_tools(pack):
                if spec.name == name and spec.handler is not None:
                    return spec.handler
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for pack in BUILTIN for spec in builtin_tools(pack))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Registry(ToolRegistry):
    """A registry whose definitions can name functions of the built-in packs, and the given handlers.

    The class is here because the core can't import the built-in packs.
    """

    __slots__ = ()

    def __init__(self, *, builtins: Handlers | None = None, internals: Handlers | None = None) -> None:
        super().__init__(builtins=ChainMap(dict(builtins or {}), BuiltinFunctions()), internals=internals)  # pyright: ignore[reportArgumentType]


# The source

IMPORT_TIMEOUT = 10.0  # seconds, for packs whose tools can't be read from their source
QUICK_IMPORT_SECONDS = 0.5  # after which the tools are read from the pack's source instead


class PackSource(Source):
    """The source of built-in packs, installed packs, and packs in the user's files and folders."""

    name = "packs"

    def __init__(self, paths: Iterable[Path] = (), fresh: bool = False, imports: bool = True) -> None:
        self._paths = tuple(paths)
        self._fresh = fresh  # the files may have been edited since they were last imported
        self._imports = imports  # otherwise packs are only parsed and none of their code runs

    def load(self) -> Catalogue:
        """Import, read or parse every pack. A failed pack is reported with file, line and cause; other packs load."""
        packs = [Catalogue(tools=builtin_tools(pack)) for pack in BUILTIN]
        taken: dict[str, str] = dict.fromkeys((*BUILTIN, "ot"), "built in")
        mistakes = [
            Mistake(message="no such file or folder", file=str(path), key="packs")
            for path in self._paths
            if not path.exists()
        ]
        for candidate in self._candidates():
            try:
                name, catalogue = self._load(candidate)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
                mistakes.append(import_mistake(candidate, error))
                continue
            if name in taken:
                message = f"duplicate pack name {name!r}: the first one stays ({taken[name]}), this one is ignored"
                hint = 'rename one of them with pack = "…"'
                mistakes.append(Mistake(message=message, file=candidate.origin, key="packs", hint=hint))
                continue
            taken[name] = candidate.origin
            packs.append(catalogue)
        return Catalogue(
            tools=tuple(spec for catalogue in packs for spec in catalogue.tools),
            prompts=tuple(prompt for catalogue in packs for prompt in catalogue.prompts),
            resources=tuple(resource for catalogue in packs for resource in catalogue.resources),
            mistakes=(*mistakes, *(mistake for catalogue in packs for mistake in catalogue.mistakes)),
        )

    def _candidates(self) -> Iterator[PackCandidate]:
        yield from installed()
        seen: set[Path] = set()
        for candidate in in_paths(path for path in self._paths if path.exists()):
            place = (candidate.file or Path()).resolve()
            if place not in seen:  # both the file and its folder may be configured
                yield candidate
            seen.add(place)

    def _load(self, candidate: PackCandidate) -> tuple[str, Catalogue]:
        """Return a pack's name and tools, read from its source if importing takes too long, or only parsed."""
        from onetool.sources.packs.reading import imports_are_there, is_heavy, parsed, read_tools

        if not self._imports:
            return parsed(candidate)
        started = PackImport(candidate, self._fresh)
        file = candidate.file
        if file is not None and is_heavy(file) and imports_are_there(file) and (tools := read_tools(file, started)):
            return tools[0].pack, Catalogue(tools=tools)
        if not started.wait(QUICK_IMPORT_SECONDS) and file is not None and (tools := read_tools(file, started)):
            return tools[0].pack, Catalogue(tools=tools)
        module = started.module(IMPORT_TIMEOUT)
        return pack_name(module), tools_of(module)


__all__ = ["BuiltinFunctions", "PackSource", "pack_modules", "restore_modules"]
