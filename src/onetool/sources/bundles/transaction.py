"""`StoreTransaction`, a change to a store: the current bundles and tools, and the methods that change them.

Places of bundles and tools are opaque to callers. A store in files uses paths.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from onetool.sources.bundles.errors import ConflictError, ForbiddenError, NotFoundError
from onetool.sources.bundles.files.overlay import Overlay
from onetool.sources.bundles.model import Bundle, Tool


class BrokenFileError(ConflictError):
    """An error for an existing file that can't be used."""

    def __init__(self, path: str, why: object) -> None:
        super().__init__(f"bundles/{path} can't be used: {why}; repair it, or move it away", "broken")
        self.path = path


def refuse_closed(bundle: Bundle) -> None:
    """Raise ForbiddenError for a bundle whose tools may not be changed."""
    if bundle.soft_deleted_at is not None:
        raise ForbiddenError(f"the bundle {bundle.slug} is deleted; PUT on the bundle itself restores it", "deleted")
    if not bundle.is_enabled:
        raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")


class StoreTransaction(ABC):
    """A change to a store.

    Set `result`, the return value of `BundleStore.change`, before the first write: a failure after that write doesn't
    undo the change.
    """

    def __init__(self) -> None:
        self.result: Any = None

    # Reading

    @abstractmethod
    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        """Return the bundle and its place."""

    def existing_bundle(self, id: str) -> tuple[Bundle, str]:
        found = self.bundle(id)
        if found is None:
            raise NotFoundError(f"there is no bundle {id}")
        return found

    def open_bundle(self, id: str) -> tuple[Bundle, str]:
        """Return a bundle whose tools may be changed."""
        bundle, place = self.existing_bundle(id)
        refuse_closed(bundle)
        return bundle, place

    @abstractmethod
    def tool(self, bundle: Bundle, place: str, slug: str, version: str, /) -> tuple[Tool, str]:
        """Return the tool and its place. Raises NotFoundError."""

    @abstractmethod
    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        """Raise ConflictError if the tool exists already."""

    @abstractmethod
    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        """Raise ConflictError if the store has a tool with one of these ids."""

    @abstractmethod
    def refuse_full(self, bundle: Bundle, place: str, /) -> None:
        """Raise ConflictError if the bundle has tools."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of tools."""

    @abstractmethod
    def overlay(self) -> Overlay:
        """Return the settings of built-in and derived bundles."""

    # Writing

    @abstractmethod
    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool] = (), texts: Sequence[bytes] = ()) -> None:
        """Add a bundle. `texts` are the contents of the tools' files."""

    @abstractmethod
    def change_bundle(
        self, place: str, bundle: Bundle | None, tools: Sequence[Tool] = (), texts: Sequence[bytes] = (), /
    ) -> None:
        """Replace the stored bundle with `bundle`, if given, and add these tools, all or nothing."""

    @abstractmethod
    def remove_empty_bundle(self, place: str, /) -> bool:
        """Remove the bundle if it is empty. Return whether it was removed."""

    @abstractmethod
    def replace_tool(self, tool: Tool, place: str, /, *, is_renamed: bool = False) -> None:
        """Replace a tool. `is_renamed` means that the slug or version has changed."""

    @abstractmethod
    def remove_tool(self, place: str, /) -> None: ...

    @abstractmethod
    def replace_overlay(self, overlay: Overlay) -> None: ...
