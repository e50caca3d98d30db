"""Editing of tools: a copy with changes, which is also how a new version is made, another name, and one's own examples.

A copy is a new tool with an id of its own, and its usage begins at 0. A tool that was renamed is the same tool: it
keeps its id, when it was created, its usage and its switch. Built-in tools can be copied: the copy calls the same
function. They can't be renamed.

Examples that belong to one owner are kept apart from those of the tool, which all see who see the tool. One document
has the examples of one owner, by the id of the tool. Its key is a hash: an owner's name is not a path.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.text import did_you_mean
from onetool.database.documents import MAX_WAIT_S, Documents
from onetool.http.definition import below
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.model import ToolExample
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.service import BundleService, Shown
from onetool.sources.bundles.store import EVERYTHING, ETag, Visibility
from onetool.sources.bundles.validation import KEPT, SHOWN, converted, read_examples

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
    """Return where a copy would be put, and its content."""
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


class VersionSwitches(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which versions of a tool to enable or disable: all of them alike, or some by their names."""

    is_enabled: Annotated[bool | UnsetType, Meta(description="All versions.")] = UNSET
    versions: Annotated[dict[str, bool] | UnsetType, Meta(description="These versions, each as it says.")] = UNSET

    def __post_init__(self) -> None:
        if (self.is_enabled is UNSET) == (self.versions is UNSET):
            raise ValueError("expected either isEnabled or versions")


def switch_versions(service: BundleService, bundle_id: str, slug: str, data: Any) -> list[Shown]:
    """Enable or disable the versions of a tool. Return all of them as they are now, newest first."""
    wanted = converted(data, VersionSwitches)
    known = [row["version"] for row in service.versions(bundle_id, slug)]
    if wanted.versions is UNSET:
        switches = dict.fromkeys(known, wanted.is_enabled)
    else:
        switches = wanted.versions
        for version in switches.keys() - set(known):
            raise InvalidError(
                f"/versions: there is no version {version!r} of {slug!r}; there are {', '.join(known)}", "/versions"
            )
    # Older versions are disabled before newer ones, and enabled after them, so that none of them takes over meanwhile.
    order = sorted(switches, key=lambda version: known.index(version) * (1 if switches[version] else -1))
    for version in order:
        service.patch_tool(bundle_id, slug, version, {"isEnabled": switches[version]})
    return service.versions(bundle_id, slug)


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


# Examples of one's own


MAX_OWNER_BYTES = 1024 * 1024  # bytes of JSON, of all tools
MAX_OWNERS = 10_000

OwnLists = dict[str, tuple[ToolExample, ...]]  # by the id of the tool


class ShownExamples(msgspec.Struct, frozen=True, kw_only=True):
    """The examples of a tool as somebody sees them: those of the tool first, then one's own."""

    examples: tuple[ToolExample, ...]
    own: Annotated[tuple[str, ...] | UnsetType, Meta(description="Names of the caller's own examples.")] = UNSET


class OwnExamples:
    """The examples of all owners, a document each. All methods block. They raise DatabaseError."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def of(self, owner: str, tool: str) -> tuple[ToolExample, ...]:
        return _lists(self._documents.read(_key(owner))).get(tool, ())

    def put(
        self,
        owner: str,
        tool: str,
        examples: tuple[ToolExample, ...],
        check: Callable[[tuple[ToolExample, ...]], object],
    ) -> None:
        """Replace those of one tool. `check` gets the ones of before, under the lock, and may refuse."""
        key = _key(owner)
        try:
            with self._documents.locked(key, MAX_WAIT_S) as held:
                lists = _lists(held.load().body)
                if not lists and len({*self._documents.keys()} - {key}) >= MAX_OWNERS:
                    raise UnavailableError(f"{MAX_OWNERS:,} callers have examples here, and no more can")
                check(lists.get(tool, ()))
                held.write(_encoded({**lists, tool: examples}))
        except TimeoutError as error:
            raise UnavailableError(f"your examples can't be kept: {error.strerror}") from None


def _encoded(lists: OwnLists) -> bytes:
    data = msgspec.json.encode({tool: one for tool, one in lists.items() if one})
    if len(data) > MAX_OWNER_BYTES:
        what = f"your examples of all tools would have more than {MAX_OWNER_BYTES:,} bytes"
        raise InvalidError(f"/examples: {what}, which is the most: remove some, or make them shorter", "/examples")
    return data


def _lists(data: bytes | None) -> OwnLists:
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=OwnLists)
    except (ValueError, RecursionError):
        raise UnavailableError("your examples can't be read: they are damaged") from None


def _key(owner: str) -> str:
    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"own examples").hexdigest()


def shown_examples(common: Sequence[Mapping[str, Any]], own: tuple[ToolExample, ...]) -> dict[str, Any]:
    """Build ShownExamples. A user's own example replaces the tool's example of the same name."""
    names = [one.name for one in own]
    others = [one for one in common if one["name"] not in names]
    return {"examples": [*others, *msgspec.to_builtins(own)], "own": names}


def examples_tag(tag: ETag, own: tuple[ToolExample, ...]) -> ETag:
    """Return the ETag of both lists. `tag` is that of the tool."""
    return f"{tag}.{blake2b(msgspec.json.encode(own), digest_size=8).hexdigest()}" if own else tag


def read_own_examples(data: Any, common: tuple[Any, ...]) -> tuple[ToolExample, ...]:
    """Read a list that may still contain the tool's `common` examples, as a client got them."""
    if not isinstance(data, Mapping) or not isinstance(data.get("examples"), list):
        return read_examples(data)
    sent: dict[str, Any] = {key: value for key, value in data.items() if key != "own"}  # pyright: ignore[reportUnknownVariableType]
    return read_examples({**sent, "examples": [one for one in sent["examples"] if _plain(one) not in common]})


def _plain(example: Any) -> Any:
    """Remove what says nothing."""
    if isinstance(example, dict) and example.get("description") == "":  # pyright: ignore[reportUnknownMemberType]
        return {key: value for key, value in example.items() if key != "description"}  # pyright: ignore[reportUnknownVariableType]
    return example  # pyright: ignore[reportUnknownVariableType]
