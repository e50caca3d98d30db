"""Editing of tools: copies with changes, such as new versions; renaming; and switches of versions.

A copy is a new tool with its own id and no usage. A renamed tool keeps its id, creation time and usage, and stays
enabled or disabled. Built-in tools can be copied (the copy calls the same function) but not renamed.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.mismatch import described
from onetool.core.text import did_you_mean
from onetool.http.definition import below
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.queries import EVERYTHING, ETag, Visibility
from onetool.sources.bundles.service import BundleService, Shown
from onetool.sources.bundles.validation import KEPT, SHOWN, converted

Place = tuple[str, str, str]
"""A bundle id, a slug and a version."""

COPY_KEYS = ("bundleID", "slug", "version", "changes")
RENAME_KEYS = ("slug", "version")
_CHECKS = {"bundleID": check_id, "slug": check_slug, "version": check_version}


def copy_tool(
    service: BundleService, place: Place, data: Any, visibility: Visibility = EVERYTHING
) -> tuple[Place, Shown, ETag]:
    """Store a copy of a tool at another place, with changes. If this raises a BundleError, nothing has changed."""
    target, content = copied(service, place, data, visibility)
    return target, *service.put_tool(*target, content)


def copied(
    service: BundleService, place: Place, data: Any, visibility: Visibility = EVERYTHING
) -> tuple[Place, dict[str, Any]]:
    """Return the place and the content of a copy."""
    request = _checked_keys(data, COPY_KEYS)
    changes = request.pop("changes", {})
    if not isinstance(changes, Mapping):
        raise invalid_at("/changes", f"expected an object, got {described(changes)}")
    for key in changes:
        if key in KEPT | SHOWN | {"slug", "version"}:
            raise invalid_at(below("/changes", key), "a copy can't change this key")
    shown, _ = service.get_tool(*place, visibility=visibility)
    kept = service.store.tool(*place)
    content = {key: value for key, value in shown.items() if key not in KEPT | SHOWN | {"slug", "version", "source"}}
    if kept is not None:
        content["isEnabled"] = kept.is_enabled  # tools without their function are shown as disabled
    names = dict(zip(("bundleID", "slug", "version"), place, strict=True)) | request
    return (names["bundleID"], names["slug"], names["version"]), merged(content, changes)


def rename_tool(service: BundleService, place: Place, data: Any, match: ETag | None = None) -> Place:
    """Change the slug or version of a tool, or both, in its bundle. Return its new place."""
    request = _checked_keys(data, RENAME_KEYS)
    if not request:
        raise InvalidError("expected slug or version, the new name", "")
    bundle_id, slug, version = place
    new = (request.get("slug", slug), request.get("version", version))
    service.rename_tool(*place, new, match)
    return (bundle_id, *new)


class VersionSwitches(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The versions of a tool to enable or disable: all versions, or some by name."""

    is_enabled: Annotated[bool | UnsetType, Meta(description="All versions.")] = UNSET
    versions: Annotated[dict[str, bool] | UnsetType, Meta(description="The switches of these versions.")] = UNSET

    def __post_init__(self) -> None:
        if (self.is_enabled is UNSET) == (self.versions is UNSET):
            raise ValueError("expected either isEnabled or versions")


def switch_versions(service: BundleService, bundle_id: str, slug: str, data: Any) -> list[Shown]:
    """Enable or disable versions of a tool. Return all versions, newest first."""
    request = converted(data, VersionSwitches)
    known = [row["version"] for row in service.versions(bundle_id, slug)]
    if request.versions is UNSET:
        switches = dict.fromkeys(known, request.is_enabled)
    else:
        switches = request.versions
        for version in switches.keys() - set(known):
            raise invalid_at("/versions", f"{slug!r} has no version {version!r}; it has {', '.join(known)}")
    # Disable older versions before newer ones, and enable them after these, so that none takes over in between.
    order = sorted(switches, key=lambda version: known.index(version) * (1 if switches[version] else -1))
    for version in order:
        service.patch_tool(bundle_id, slug, version, {"isEnabled": switches[version]})
    return service.versions(bundle_id, slug)


def merged(value: Any, changes: Any) -> Any:
    """Apply a JSON Merge Patch (RFC 7396): objects are merged, null removes a key, other values replace."""
    if not isinstance(changes, Mapping):
        return changes
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, change in changes.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), change)
    return result


def _checked_keys(data: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError(f"expected an object, got {described(data)}", "")
    checked: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            near = did_you_mean(key, known) or f"known: {', '.join(known)}"
            raise invalid_at(below("", key), f"there is no such key; {near}")
        if (check := _CHECKS.get(key)) is not None:
            if not isinstance(value, str):
                raise invalid_at(f"/{key}", f"expected a string, got {described(value)}")
            checked[key] = check(value, f"/{key}")
        else:
            checked[key] = value
    return checked
