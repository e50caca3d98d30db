"""Moves everything between two stores, such as a folder and a database: with ids, times and what is deleted.

Not moved is what each place makes for itself: the index, and the key of page tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import ConflictError, NotFoundError
from onetool.sources.bundles.files.form import check_set, tool_text
from onetool.sources.bundles.files.overlay import Overlay
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import StoreRules
from onetool.sources.bundles.transaction import StoreTransaction
from onetool.sources.bundles.usage import Counts


class BundlesExport(NamedTuple):
    bundles: list[tuple[Bundle, list[Tool]]]
    overlay: Overlay  # switches and examples of what is built in or derived
    usage: Counts
    broken: list[Mistake]  # what can't be read, and so is not in here


def export_bundles(store: StoreRules) -> BundlesExport:
    """All that a store has. Raises BundleError if it can't be read."""
    store.sync()
    bundles, tools = store.everything()
    of: dict[str, list[Tool]] = {bundle.id: [] for bundle in bundles}
    for tool in tools:
        if tool.bundle_id in of:  # else its bundle can't be read, which is told
            of[tool.bundle_id].append(tool)
    found = [(bundle, of[bundle.id]) for bundle in bundles]
    return BundlesExport(found, _overlay(store), store.counter.all(), store.mistakes())


def import_bundles(store: StoreRules, export: BundlesExport) -> int:
    """How many bundles were new, or had new tools. What is there already is left alone, so it can be repeated.

    Each bundle is all or nothing. Raises ConflictError for one that differs from that of the store.
    """
    count = sum(_restore(store, bundle, tools) for bundle, tools in export.bundles)
    _restore_overlay(store, export.overlay)
    known, never = store.counter.of(export.usage), (0, "")
    more = {id: (calls - known.get(id, never)[0], last) for id, (calls, last) in export.usage.items()}
    store.counter.add({id: one for id, one in more.items() if one[0] > 0})
    return count


def _overlay(store: StoreRules) -> Overlay:
    def job(work: StoreTransaction) -> None:
        work.result = work.overlay()

    try:
        return store.change(job)
    except NotFoundError:  # there is no store yet
        return Overlay()


def _restore(store: StoreRules, bundle: Bundle, tools: Sequence[Tool]) -> bool:
    """Whether anything was missing."""
    check_set(tools)
    texts = {tool.id: tool_text(tool, is_kept=True) for tool in tools}

    def job(work: StoreTransaction) -> None:
        found, work.result = work.bundle(bundle.id), False
        new = tools if found is None else [tool for tool in tools if not _is_there(work, found, tool)]
        work.refuse_ids(new)
        store.refuse_more(work, len(new))
        if found is None:
            work.add_bundle(bundle, new, [texts[tool.id] for tool in new], True)
        elif found[0] != bundle:
            raise ConflictError(f"there is another bundle {bundle.slug} with the id {bundle.id} already", "exists")
        elif new:
            work.add_tools(new, [texts[tool.id] for tool in new], found[1], True)

    return store.change(job, makes=True)


def _is_there(work: StoreTransaction, found: tuple[Bundle, str], tool: Tool) -> bool:
    try:
        old, _ = work.tool(*found, tool.slug, tool.version)
    except NotFoundError:
        return False
    if old != tool:
        name = f"{found[0].slug}/{tool.slug}@{tool.version}"
        raise ConflictError(f"there is another {name} already: remove one of them, or rename it", "exists")
    return True


def _restore_overlay(store: StoreRules, overlay: Overlay) -> None:
    """What is set already of other things stays."""

    def job(work: StoreTransaction) -> None:
        before = work.overlay()
        both = Overlay(
            bundles=dict(sorted({**before.bundles, **overlay.bundles}.items())),
            tools=dict(sorted({**before.tools, **overlay.tools}.items())),
            examples=dict(sorted({**before.examples, **overlay.examples}.items())),
        )
        if both != before:
            work.replace_overlay(both, both.over(store.built_in), None)

    if overlay != Overlay():
        store.change(job, makes=True)
