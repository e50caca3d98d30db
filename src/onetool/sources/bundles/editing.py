"""Editing of tools: a copy with changes, which is also how a new version is made, and another name for a tool.

A copy is a new tool with an id of its own, and its usage begins at 0. A tool that was renamed is the same tool: it
keeps its id, when it was created, its usage and its switch. Built-in tools can be copied: the copy calls the same
function. They can't be renamed.
"""

from collections.abc import Mapping
from typing import Any

from onetool.core.text import did_you_mean
from onetool.http.definition import below
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.service import BundleService, Shown
from onetool.sources.bundles.store import EVERYTHING, ETag, Visibility
from onetool.sources.bundles.validation import KEPT, SHOWN

Place = tuple[str, str, str]
"""The id of a bundle, a slug and a version."""

COPY_KEYS = ("bundleID", "slug", "version", "changes")
RENAME_KEYS = ("slug", "version")
_CHECKS = {"bundleID": check_id, "slug": check_slug, "version": check_version}


def copy_tool(
    service: BundleService, place: Place, data: Any, visibility: Visibility = EVERYTHING
) -> tuple[Place, Shown, ETag]:
    """Store a tool at another place, with changes. Raises a BundleError, and then nothing has changed."""
    target, content = copied(service, place, data, visibility)
    return target, *service.put_tool(*target, content)


def copied(
    service: BundleService, place: Place, data: Any, visibility: Visibility = EVERYTHING
) -> tuple[Place, dict[str, Any]]:
    """Where a copy would be put, and as what."""
    wanted = _wanted(data, COPY_KEYS)
    changes = wanted.pop("changes", {})
    if not isinstance(changes, Mapping):
        raise InvalidError("/changes: expected a JSON object", "/changes")
    for key in changes:
        if key in KEPT | SHOWN | {"slug", "version"}:
            raise InvalidError(f"/changes/{key}: it can't be changed in this way", below("/changes", key))
    found, _ = service.get_tool(*place, visibility=visibility)
    kept = service.store.tool(*place)
    content = {key: value for key, value in found.items() if key not in KEPT | SHOWN | {"slug", "version", "source"}}
    if kept is not None:
        content["isEnabled"] = kept.is_enabled  # where its function is gone, it is shown as switched off
    names = dict(zip(("bundleID", "slug", "version"), place, strict=True)) | wanted
    return (names["bundleID"], names["slug"], names["version"]), merged(content, changes)


def rename_tool(
    service: BundleService, place: Place, data: Any, match: ETag | None = None
) -> tuple[Place, Shown, ETag]:
    """Give a tool another slug or version, or both, in its bundle."""
    wanted = _wanted(data, RENAME_KEYS)
    if not wanted:
        raise InvalidError("expected slug or version: what it is to be called", "")
    bundle_id, slug, version = place
    new = (wanted.get("slug", slug), wanted.get("version", version))
    return (bundle_id, *new), *service.rename_tool(*place, new, match)


def merged(value: Any, changes: Any) -> Any:
    """JSON Merge Patch (RFC 7396): objects are merged, null removes a key, anything else replaces."""
    if not isinstance(changes, Mapping):
        return changes
    found = dict(value) if isinstance(value, Mapping) else {}
    for key, change in changes.items():
        if change is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), change)
    return found


def _wanted(data: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError("the body: expected a JSON object", "")
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            near = did_you_mean(key, known) or f"there are {', '.join(known)}"
            raise InvalidError(f"{below('', key)}: there is no such key; {near}", below("", key))
        if (check := _CHECKS.get(key)) is not None:
            if not isinstance(value, str):
                raise InvalidError(f"/{key}: expected a text", f"/{key}")
            found[key] = check(value, f"/{key}")
        else:
            found[key] = value
    return found
