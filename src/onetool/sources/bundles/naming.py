"""What the tools of bundles are called in code: `bundle.tool`, and `bundle.tool@version` for one version.

Without a version it is the enabled one that was modified last. Where two bundles, or a bundle and a pack, would have
one name, the first keeps it; the other one is reached by its id, over REST.
"""

import builtins
from collections.abc import Callable, Collection, Iterable, Iterator
from keyword import kwlist
from typing import NamedTuple

from onetool.core.errors import Mistake
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import code_name

Make = Callable[[Tool, str, str | None], ToolSpec]
"""A tool under a name; and why it must not be called, if so."""

AT = "@"
PYTHONS_OWN = frozenset((*dir(builtins), *kwlist))  # `len` must go on to be what it is in everybody's code


class Versions(NamedTuple):
    """All versions of one tool."""

    bundle: Bundle
    tools: list[Tool]

    def newest(self, why_not: Callable[[Tool], str | None]) -> Tool:
        """The one that is meant where no version is named. One that can't be called, only if there is no other."""
        if len(self.tools) == 1:
            return self.tools[0]
        return max(self.tools, key=lambda tool: (tool.is_enabled and not why_not(tool), tool.modified_at, tool.id))


class Named:
    """The tools under their names. `get` also finds single versions."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        tools: Iterable[Tool],
        make: Make,
        why_not: Callable[[Tool], str | None],
        taken: Collection[str] = (),
    ) -> None:
        """`taken` are names that something else has already; `why_not` says why a tool can't run, if so."""
        self._make = make
        self._why_not = why_not
        self._made: dict[str, ToolSpec] = {}
        self.ids: dict[str, str] = {}  # of the tool that a name stands for
        self.mistakes: list[Mistake] = []
        packs = dict(self._packs(bundles, taken))
        self._owners = packs.keys()
        self._versions: dict[str, Versions] = {}
        for tool in tools:
            if (found := packs.get(tool.bundle_id)) is not None:
                name = f"{found[0]}.{code_name(tool.slug)}"
                self._versions.setdefault(name, Versions(found[1], [])).tools.append(tool)

    def _packs(self, bundles: Iterable[Bundle], taken: Collection[str]) -> Iterator[tuple[str, tuple[str, Bundle]]]:
        """Each bundle that has its name, and what code calls it."""
        owners: dict[str, Bundle] = {}
        for bundle in sorted(bundles, key=lambda one: (one.created_at, one.id)):
            if bundle.soft_deleted_at is not None:
                continue
            pack = code_name(bundle.slug)
            if pack in taken or pack in owners or pack in PYTHONS_OWN:
                self.mistakes.append(_shadowed(bundle, owners.get(pack)))
            else:
                owners[pack] = bundle
                yield bundle.id, (pack, bundle)

    def specs(self) -> Iterator[ToolSpec]:
        """One for each name."""
        for name, versions in self._versions.items():
            tool = versions.newest(self._why_not)
            self.ids[name] = tool.id
            yield self._spec(tool, name, versions.bundle)

    def get(self, name: str) -> ToolSpec | None:
        """`bundle.tool@version`."""
        base, at, version = name.rpartition(AT)
        versions = self._versions.get(base) if at else None
        if versions is None:
            return None
        found = self._made.get(name)
        if found is None:
            tool = next((one for one in versions.tools if one.version == version), None)
            if tool is None:
                return None
            self.ids[name] = tool.id
            found = self._made[name] = self._spec(tool, name, versions.bundle)
        return found

    def name_of(self, bundle: Bundle, tool: Tool) -> str:
        """What a call of this very tool is counted under."""
        name = f"{code_name(bundle.slug)}.{code_name(tool.slug)}"
        if tool.is_built_in or self.ids.get(name) == tool.id:
            return name
        if bundle.id not in self._owners:  # another one has its name, and what is allowed to that one
            return f"{bundle.id}/{tool.slug}{AT}{tool.version}"
        return f"{name}{AT}{tool.version}"

    def _spec(self, tool: Tool, name: str, bundle: Bundle) -> ToolSpec:
        return self._make(tool, name, self._off(tool, bundle))

    def _off(self, tool: Tool, bundle: Bundle) -> str | None:
        if not bundle.is_enabled:
            return f"its bundle is: onetool bundles enable {bundle.slug}"
        if not tool.is_enabled:
            return f"onetool bundles enable {bundle.slug}/{tool.slug}{AT}{tool.version}"
        return self._why_not(tool)


def _shadowed(bundle: Bundle, by: Bundle | None) -> Mistake:
    other = (
        f"the bundle {by.id}" if by else "Python itself" if code_name(bundle.slug) in PYTHONS_OWN else "something else"
    )
    return Mistake(
        message=f"the bundle {bundle.slug!r} ({bundle.id}) is shadowed: {other} has this name in code already",
        key=f"bundles.{bundle.slug}",
        hint="give it another slug, or call its tools by id over REST",
        severity="warning",
    )
