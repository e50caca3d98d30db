"""What people have set of tools that are built in or derived: what is switched off, and the examples of each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, BundleSource, Tool, ToolExample, built_in_id, function_of
from onetool.sources.bundles.store import BundleStore


class KeptSettings(NamedTuple):
    """Disabled tools by their names, each with the place of its switch, and sources that are disabled as a whole."""

    tools: Mapping[str, str] = {}
    sources: frozenset[BundleSource] = frozenset()
    examples: Mapping[str, tuple[ToolExample, ...]] = {}  # of each tool, by its name

    def hides(self, spec: ToolSpec) -> bool:
        """Whether a prompt or a resource with this spec belongs to a disabled source."""
        if spec.source != "local":
            return BundleSource(kind="server", name=spec.source.partition(":")[2]) in self.sources
        return BundleSource(kind="pack", name=spec.pack) in self.sources


def switched_off_in(bundle: Bundle, tools: Iterable[Tool]) -> dict[str, str]:
    if not bundle.is_enabled:
        return {function_of(tool): bundle.slug for tool in tools}
    return {function_of(tool): f"{bundle.slug}/{tool.slug}" for tool in tools if not tool.is_enabled}


def kept_settings(store: BundleStore, built_in: Collection[str]) -> KeptSettings:
    """What is set of the built-in tools, by their names, and of derived ones."""
    packs = {name.partition(".")[0] for name in built_in}
    bundles: list[tuple[Bundle, Sequence[Tool]]] = [
        (bundle, store.tools((), [bundle.id], True, None, len(built_in)))
        for bundle in store.bundles([built_in_id(pack) for pack in packs], True, None, len(packs))
    ]
    bundles += [] if store.are_all_on() else store.derived()
    off, examples, sources = dict[str, str](), dict[str, tuple[ToolExample, ...]](), set[BundleSource]()
    for bundle, tools in bundles:
        off |= switched_off_in(bundle, tools)
        examples |= {function_of(tool): tool.examples for tool in tools if tool.examples}
        if not bundle.is_enabled and bundle.source is not None:
            sources.add(bundle.source)
    return KeptSettings(off, frozenset(sources), examples)
