"""What people have set of tools that are built in or derived: what is switched off, and the examples of each."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, BundleSource, Tool, ToolExample, function_of


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
