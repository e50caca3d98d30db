"""Goes through all pages of the lists of a `BundleService`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetool.sources.bundles.service import BundleService, Shown

PAGE = 1000


def all_bundles(shelf: "BundleService") -> "Iterator[Shown]":
    """Those that are switched off or deleted, too."""
    after: str | None = None
    while True:
        page, after = shelf.bundles((), True, after, PAGE)
        yield from page
        if after is None:
            return


def all_tools(shelf: "BundleService", bundle_id: str | None = None) -> "Iterator[Shown]":
    """Of one bundle, or of all; those that are switched off, too."""
    ids = [] if bundle_id is None else [bundle_id]
    after: str | None = None
    while True:
        page, after = shelf.tools((), ids, True, after, PAGE)
        yield from page
        if after is None:
            return


def live_bundle(shelf: "BundleService", slug: str) -> "Shown | None":
    """The first bundle of that slug, if there is one that was not deleted. A pack or a server of that name is none."""
    kept = (one for one in all_bundles(shelf) if "source" not in one)
    return next((one for one in kept if one["slug"] == slug and one["softDeletedAt"] is None), None)
