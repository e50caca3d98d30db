"""Checks a pack without running its tools: what would fail, and what a model could not understand."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from onetool.core.errors import Mistake
from onetool.core.registry import Snapshot, duplicate
from onetool.core.spec import ToolSpec
from onetool.sdk.pack import pack_name, tools_of
from onetool.sources.packs.importing import PackCandidate, PackImport, import_mistake, in_paths


def check_packs(path: Path, known: Snapshot) -> list[Mistake]:
    """Everything about the pack, or the folder of packs, at this path. `known` are the tools that there are already."""
    candidates = list(in_paths([path]))
    if not candidates:
        return [Mistake(message="there is no pack here: no Python file that could be one", file=str(path))]
    return [mistake for candidate in candidates for mistake in _check(candidate, known)]


def _check(candidate: PackCandidate, known: Snapshot) -> Iterator[Mistake]:
    try:
        module = PackImport(candidate, fresh=True).module()
        name, found = pack_name(module), tools_of(module)
    except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
        yield import_mistake(candidate, error)
        return
    yield from found.mistakes
    if not (found.tools or found.prompts or found.resources or found.mistakes):
        yield Mistake(message="it has no tools: no public function", file=candidate.origin, key=name)
    yield from _clashes(name, candidate, known)
    yield from _duplicate_tools(found.tools)
    if not name.isidentifier():
        message = f"the pack name {name!r} can't be written in code as it is"
        yield Mistake(message=message, file=candidate.origin, key=name, hint="take a word", severity="warning")
    for spec in found.tools:
        yield from _check_tool(spec, _function(module, spec))


def _clashes(name: str, candidate: PackCandidate, known: Snapshot) -> Iterator[Mistake]:
    """The name belongs to another pack: the one that comes first would win."""
    others = {spec.defined_in.rpartition(":")[0] for spec in known.packs().get(name, {}).values() if spec.defined_in}
    others -= {candidate.origin, str(Path(candidate.origin).resolve())}
    if others:
        message = f"the pack name {name!r} is taken by {', '.join(sorted(others))}"
        yield Mistake(message=message, file=candidate.origin, key=name, hint='choose another with pack = "…"')


def _duplicate_tools(tools: Iterable[ToolSpec]) -> Iterator[Mistake]:
    """Two tools of one name: the second would be refused."""
    first: dict[str, ToolSpec] = {}
    for spec in tools:
        if spec.name in first:
            file, _, line = (spec.defined_in or "").rpartition(":")
            yield Mistake(message=duplicate(first[spec.name], spec), file=file, line=int(line), key=spec.name)
        first.setdefault(spec.name, spec)


def _check_tool(spec: ToolSpec, function: Callable[..., Any] | None) -> Iterator[Mistake]:
    file, _, line = (spec.defined_in or "").rpartition(":")
    place = {"file": file, "line": int(line), "key": spec.name, "severity": "warning"}
    if function is None:
        return
    if not inspect.getdoc(function):
        yield Mistake(
            message="has no docstring: a model sees only its name", hint="say what it does in a line", **place
        )
    for parameter in inspect.signature(function).parameters.values():
        described = spec.input_schema.get("properties", {}).get(parameter.name, {})
        if parameter.annotation is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            yield Mistake(message=f"{parameter.name} has no type hint: it takes anything", **place)
        elif parameter.name in spec.input_schema.get("properties", {}) and not described.get("description"):
            yield Mistake(message=f"{parameter.name} is not described in the docstring", **place)
    returns = inspect.signature(function).return_annotation
    if spec.output_schema is None and returns not in (inspect.Signature.empty, None, "None", Any, "Any"):
        yield Mistake(message=f"what it returns ({returns}) has no form in JSON that could be checked", **place)


def _function(module: ModuleType, spec: ToolSpec) -> Callable[..., Any] | None:
    """The author's function behind a tool, for its own hints and docstring."""
    functions = (value for value in vars(module).values() if inspect.isfunction(value))
    places = ((one, f"{one.__code__.co_filename}:{one.__code__.co_firstlineno}") for one in functions)
    return next((one for one, place in places if place == spec.defined_in), None)
