"""Copy everything between two stores, such as a folder and a database, including ids, times and deleted bundles.

The search index and the key for page tokens are not copied, because each store creates its own.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from onetool.core.errors import Mistake
from onetool.database.moving import LeftBehind, Moved, Progress
from onetool.sources.bundles.errors import ConflictError, NotFoundError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store.contents import Contents
from onetool.sources.bundles.store.overlay import Overlay
from onetool.sources.bundles.store.paths import tool_file
from onetool.sources.bundles.store.storage import Change
from onetool.sources.bundles.store.store import (
    BundleStore,
    changed_bundle_file,
    new_bundle_files,
    overlay_files,
    stored_overlay,
)
from onetool.sources.bundles.store.text import check_set, tool_text
from onetool.sources.bundles.usage import Counts

T = TypeVar("T")


class BundlesExport(NamedTuple):
    bundles: list[tuple[Bundle, list[Tool]]]
    overlay: Overlay  # switches and examples of built-in and derived tools
    usage: Counts
    broken: list[Mistake]  # unreadable files, which are missing here


def export_bundles(store: BundleStore) -> BundlesExport:
    """Export the whole content of a store. Raises BundleError if the store can't be read."""
    store.sync()
    bundles, tools = store.everything()
    by_bundle: dict[str, list[Tool]] = {bundle.id: [] for bundle in bundles}
    for tool in tools:
        if tool.bundle_id in by_bundle:  # otherwise the unreadable bundle is in `broken`
            by_bundle[tool.bundle_id].append(tool)
    exported = [(bundle, by_bundle[bundle.id]) for bundle in bundles]
    return BundlesExport(exported, _overlay(store), store.counter.all(), store.mistakes())


def import_bundles(
    store: BundleStore, export: BundlesExport, force: bool = False, progress: Progress = lambda done, total: None
) -> Moved:
    """Import bundles and settings, and return the number of moved and existing items.

    Existing data is kept, so the import can be repeated. Each bundle is imported completely or not at all. If the
    store's bundle differs, it is kept, or replaced with `force`. Only a database supports `force`, because it changes
    several tools in one transaction.
    """
    moved, same, left = 0, 0, [LeftBehind(mistake.file or "bundles", mistake.message) for mistake in export.broken]
    for number, (bundle, tools) in enumerate(export.bundles, 1):
        try:
            is_new = _restore(store, bundle, tools, force)
            moved, same = moved + is_new, same + (not is_new)
        except ConflictError as error:
            left.append(LeftBehind(f"bundles: {bundle.slug}", str(error), is_conflict=not force))
        progress(number, len(export.bundles))
    settings = _restore_overlay(store, export.overlay, force)
    before, never = store.counter.of(export.usage), (0, "")
    more = {id: (calls - before.get(id, never)[0], last) for id, (calls, last) in export.usage.items()}
    store.counter.add({id: (calls, last) for id, (calls, last) in more.items() if calls > 0})
    return Moved(moved + settings.moved, same + settings.same, (*left, *settings.left))


def _overlay(store: BundleStore) -> Overlay:
    try:
        return store.change(lambda now: Change({}, stored_overlay(now)))
    except NotFoundError:  # the store doesn't exist yet
        return Overlay()


def _restore(store: BundleStore, bundle: Bundle, tools: Sequence[Tool], force: bool) -> bool:
    """Restore a bundle, and return whether anything was missing."""
    check_set(tools)
    texts = {tool.id: tool_text(tool, is_kept=True) for tool in tools}

    def job(now: Contents) -> Change:
        stored = now.bundles.get(bundle.id)
        here = now.tools.get(bundle.id, {})
        new = [tool for tool in tools if (row := here.get((tool.slug, tool.version))) is None or row.tool() != tool]
        ids, names = {tool.id for tool in new}, {(tool.slug, tool.version) for tool in new}
        replaced = [row for row in here.values() if row.id in ids or (row.slug, row.version) in names]
        if replaced and not force:
            name = f"{bundle.slug}/{replaced[0].slug}@{replaced[0].version}"
            raise ConflictError(f"another {name} already exists: remove one of them, or rename it", "exists")
        now.refuse_ids(tool for tool in new if tool.id not in {row.id for row in replaced})
        store.refuse_more(now, len(new) - len(replaced))
        if stored is None:
            return Change(new_bundle_files(now, bundle, new, [texts[tool.id] for tool in new]), True)
        if stored.bundle != bundle and not force:
            raise ConflictError(f"another bundle {bundle.slug} already exists, with the id {bundle.id}", "exists")
        files: dict[str, bytes | None] = {row.path: None for row in replaced}
        files |= {tool_file(stored.folder, tool.slug, tool.version): texts[tool.id] for tool in new}
        files |= changed_bundle_file(stored, bundle)
        return Change(files, bool(files))

    return store.change(job, makes=True)


def _restore_overlay(store: BundleStore, overlay: Overlay, force: bool) -> Moved:
    """Restore the settings. Existing settings of other tools stay."""

    def job(now: Contents) -> Change:
        before = stored_overlay(now)
        bundles, bundles_moved = _merge_settings(before.bundles, overlay.bundles, force)
        tools, tools_moved = _merge_settings(before.tools, overlay.tools, force)
        examples, examples_moved = _merge_settings(before.examples, overlay.examples, force)
        merged = Overlay(bundles=bundles, tools=tools, examples=examples)
        return Change(overlay_files(before, merged), (bundles_moved, tools_moved, examples_moved))

    if overlay == Overlay():
        return Moved()
    parts: tuple[Moved, ...] = store.change(job, makes=True)
    left = tuple(item for part in parts for item in part.left)
    return Moved(sum(part.moved for part in parts), sum(part.same for part in parts), left)


def _merge_settings(before: dict[str, T], more: dict[str, T], force: bool) -> tuple[dict[str, T], Moved]:
    same = [key for key, value in more.items() if before.get(key) == value]
    other = [] if force else [key for key, value in more.items() if key in before and before[key] != value]
    new = {key: value for key, value in more.items() if key not in same and key not in other}
    left = tuple(
        LeftBehind(f"bundles: {key}", "the database has a different setting", is_conflict=True) for key in other
    )
    return dict(sorted({**before, **new}.items())), Moved(len(new), len(same), left)
