"""What `ot.tools` gives: the tools of a catalogue as plain data, in short or in full."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from onetool.core.failure import cut
from onetool.core.registry import Snapshot
from onetool.core.returns import returns
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.core.type_names import fields, resolved
from onetool.packs.ot.filtering import Info, wanted

Words = Callable[[Snapshot], Mapping[str, str]]
"""What code writes for each tool of a catalogue, by the tool's own name."""

# What stands in an example for an argument that must be given.
STAND_INS: Mapping[Any, Any] = {"integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
SHORT = 200  # characters of a description, where many stand together


class Listed(msgspec.Struct, frozen=True):
    """A tool, what code calls it, and its names as a pattern is compared with them."""

    word: str
    spec: ToolSpec
    gist: str
    names: tuple[str, ...]
    dotted: tuple[str, ...]  # the same with a pack before each: a tool without one is under `config`

    @property
    def pack(self) -> str:
        """As code says it."""
        return self.word.partition(".")[0] if "." in self.spec.name else self.spec.pack


class Listing:
    """Lists tools. What they are called is found out once for each catalogue."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._last: tuple[Snapshot, list[Listed], dict[str, Listed]] | None = None

    def tools(
        self, catalogue: Snapshot, allowed: Collection[str] | None = None, pattern: str = "", info: Info = "min"
    ) -> list[Any]:
        """The tools whose name contains the pattern, in the order of the catalogue."""
        said = wanted(pattern)
        form: Callable[[Listed], Any] = {"list": _word, "min": in_short, "full": in_full}[info]
        return [form(one) for one in self.of(catalogue, allowed) if _matches(one, said)]

    def of(self, catalogue: Snapshot, allowed: Collection[str] | None = None) -> list[Listed]:
        """All that may be seen, in the order of the catalogue."""
        every, _ = self._all(catalogue)
        if allowed is None:
            return every
        permitted = frozenset(allowed)
        return [one for one in every if one.spec.name in permitted]

    def find(self, name: str, catalogue: Snapshot, allowed: Collection[str] | None = None) -> Listed | None:
        """The tool that code calls so, or that is called so."""
        _, named = self._all(catalogue)
        one = named.get(name)
        return one if one is not None and (allowed is None or one.spec.name in allowed) else None

    def _all(self, catalogue: Snapshot) -> tuple[list[Listed], dict[str, Listed]]:
        last = self._last
        if last is None or last[0] is not catalogue:
            words = self._words(catalogue)
            tools = [_listed(words[spec.name], spec) for spec in catalogue if spec.enabled and not spec.hidden]
            last = self._last = (catalogue, tools, by_name(tools))
        return last[1:]


def by_name(tools: Iterable[Listed]) -> dict[str, Listed]:
    """Each tool by its own name and by what code calls it; one without a dot also under its pack, `config`."""
    under_pack = {f"{one.pack}.{one.word}": one for one in tools if "." not in one.spec.name}
    return under_pack | {name: one for one in tools for name in (one.spec.name, one.word)}


def _listed(word: str, spec: ToolSpec) -> Listed:
    names = tuple({word.casefold(), spec.name.casefold()})
    short = gist(spec.description)
    return Listed(
        word, spec, short, names, names if "." in spec.name else tuple(f"{spec.pack}.{name}" for name in names)
    )


def _matches(one: Listed, said: str) -> bool:
    if not said:
        return True
    return any(said in name for name in (one.dotted if "." in said else one.names))


def _word(one: Listed) -> str:
    return one.word


def in_short(one: Listed) -> dict[str, str]:
    return {"name": one.word, "description": one.gist}


def gist(description: str, most: int = SHORT) -> str:
    """The first paragraph of a description tells what a tool is good for."""
    first = description.strip().partition("\n\n")[0]
    return cut(" ".join(first.split()), most)


def in_full(one: Listed) -> dict[str, Any]:
    spec = one.spec
    known = {
        "args": [*arguments(spec.input_schema, spec.order)],
        "returns": returns(spec),
        "example": example(one),
        "requires": [need.told() for need in spec.requires],
    }
    return {
        "name": one.word,
        "signature": signature(spec, one.word),
        "description": spec.description,
        "source": spec.source,
        **{key: value for key, value in known.items() if value},
    }


def arguments(schema: Mapping[str, Any], order: Iterable[str]) -> Iterator[str]:
    """What is said of each argument, in the order of the signature, and the fields of those that are objects."""
    for name in order:
        part = schema["properties"][name]
        words = part.get("description") if isinstance(part, Mapping) else None
        told = " ".join(filter(None, (str(words or "").strip(), fields(part, schema))))
        if told:
            yield f"{spelled(name)}: {told}"


def example(tool: Listed) -> str:
    """The author's, or a call with what must be given."""
    if tool.spec.examples:
        return tool.spec.examples[0]
    schema = tool.spec.input_schema
    given = (
        f"{spelled(name)}={_stand_in(schema['properties'][name], schema)!r}" for name in schema.get("required") or ()
    )
    return f"{tool.word}({', '.join(given)})"


def _stand_in(schema: Any, root: Mapping[str, Any]) -> Any:
    part = resolved(schema, root)
    if not isinstance(part, Mapping):
        return "..."
    for key in ("default", "const"):
        if key in part:
            return part[key]
    if choices := part.get("enum") or part.get("examples"):
        return choices[0]
    kind = part.get("type")
    return STAND_INS.get(kind, "...") if isinstance(kind, str) else "..."
