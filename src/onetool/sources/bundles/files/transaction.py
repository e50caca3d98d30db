"""`FileTransaction` is one change of the store: files and index together, under the lock.

What counts is what the files say, not what the index knows of them. The index only knows where they are; where it is
wrong about that, `IndexOutOfDate` asks for a sync and another try.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from onetool.core.os_files import OpenFolder
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError
from onetool.sources.bundles.files import disk, writing
from onetool.sources.bundles.files.disk import (
    BUNDLE,
    OVERLAY,
    TOOLS,
    bundle_file,
    bundle_folders,
    folder_of,
    tool_file,
    tool_name,
    tools_of,
)
from onetool.sources.bundles.files.form import bundle_text, not_empty, read_bundle_file, read_tool_file, tool_text
from onetool.sources.bundles.files.overlay import Overlay, overlay_text, read_overlay, switches_text
from onetool.sources.bundles.index import IndexTransaction, Stamp
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.transaction import BrokenFileError, StoreTransaction

T = TypeVar("T")


class IndexOutOfDate(Exception):  # noqa: N818 - nothing is wrong: a look puts it right
    """The index knows of a file that is not there, or is another one."""


class FileTransaction(StoreTransaction):
    """`is_done`: the files are written durably; `result` is returned even if the index fails then."""

    def __init__(self, root: OpenFolder, changes: IndexTransaction) -> None:
        super().__init__()
        self._root = root
        self._changes = changes
        self.is_done = False

    # What is there

    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        """The bundle and the name of its folder."""
        path = self._changes.path_of_bundle(id)
        if path is None:
            return None
        bundle = self._bundle(folder_of(path))
        if bundle.id != id:
            raise IndexOutOfDate
        return bundle, folder_of(path)

    def tool(self, bundle: Bundle, folder: str, slug: str, version: str) -> tuple[Tool, str]:
        """The tool and its path."""
        known = self._changes.path_of_tool(bundle.id, slug, version)
        path = known or tool_file(folder, slug, version)
        if known is None and not writing.exists(self._root, path):
            raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")
        tool = self._tool(bundle.id, path)
        if (tool.slug, tool.version) == (slug, version):
            return tool, path
        if known is not None:
            raise IndexOutOfDate
        raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")

    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        """Raises ConflictError if the tool exists already."""
        known = self._changes.path_of_tool(bundle.id, slug, version)
        if known is not None and not writing.exists(self._root, known):
            raise IndexOutOfDate
        if known is not None:
            raise ConflictError(f"there is a tool {slug}@{version} in the bundle {bundle.slug} already", "exists")

    def count(self) -> int:
        return self._changes.count_tools()

    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            if self._changes.has_tool_id(tool.id):
                raise ConflictError(f"there is another tool with the id {tool.id} already", "exists")

    def refuse_full(self, bundle: Bundle, folder: str) -> None:
        """What could be tools counts, also what can't be read."""
        names = [name for name in writing.names_in(self._root, tools_of(folder)) if name.endswith(".json")]
        if names:
            raise ConflictError(not_empty(bundle, names, f"bundles/{folder}/tools"), "not_empty")

    def is_empty(self, folder: str) -> bool:
        """Whether the folder has no files."""
        names = set(writing.names_in(self._root, folder))
        return names <= {BUNDLE, TOOLS} and not writing.names_in(self._root, tools_of(folder))

    # What becomes of it

    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool], texts: Sequence[bytes], result: Any) -> None:
        files = [(BUNDLE, bundle_text(bundle))]
        files += [(f"{TOOLS}/{tool_name(one.slug, one.version)}", text) for one, text in zip(tools, texts, strict=True)]
        folder = self._add_folder(bundle, files)
        self._done(result)
        self._changes.put_bundle(bundle, bundle_file(folder), self._stamp(bundle_file(folder)))
        for tool in tools:
            path = tool_file(folder, tool.slug, tool.version)
            self._changes.put_tool(tool, path, self._stamp(path))

    def replace_bundle(self, bundle: Bundle, folder: str, result: Any) -> None:
        path = bundle_file(folder)
        writing.replace(self._root, path, bundle_text(bundle))
        self._done(result)
        self._changes.put_bundle(bundle, path, self._stamp(path))

    def remove_bundle(self, folder: str, result: Any) -> None:
        writing.remove(self._root, folder)
        self._done(result)
        self._changes.drop(bundle_file(folder))

    def add_tools(
        self, tools: Sequence[Tool], texts: Sequence[bytes], folder: str, result: Any, bundle: Bundle | None = None
    ) -> None:
        """All of them, or none; and `bundle` in the place of that of the folder, if it is given."""
        paths = [tool_file(folder, tool.slug, tool.version) for tool in tools]
        made: list[str] = []
        if writing.ensure_folder(self._root, tools_of(folder)):
            made.append(tools_of(folder))
        try:
            for tool, path, text in zip(tools, paths, texts, strict=True):
                self._create_tool(tool, path, text)
                made.append(path)
            if bundle is not None:
                writing.replace(self._root, bundle_file(folder), bundle_text(bundle))
        except BaseException:
            for path in reversed(made):
                writing.remove_quietly(self._root, path)
            raise
        self._done(result)
        if bundle is not None:
            self._changes.put_bundle(bundle, bundle_file(folder), self._stamp(bundle_file(folder)))
        for tool, path in zip(tools, paths, strict=True):
            self._changes.put_tool(tool, path, self._stamp(path))

    def _create_tool(self, tool: Tool, path: str, text: bytes) -> None:
        try:
            writing.create(self._root, path, text)
        except FileExistsError:
            self._refuse_file(tool, path)
            raise

    def replace_tool(self, tool: Tool, path: str) -> None:
        writing.replace(self._root, path, tool_text(tool))
        self._done(tool)
        self._changes.put_tool(tool, path, self._stamp(path))

    def rename_tool(self, tool: Tool, path: str) -> None:
        """Write a tool with another slug or version in the place of its file, and name the file after it.

        The first step is the change. A file whose name is that of before is a tool like any other.
        """
        new = tool_file(folder_of(path), tool.slug, tool.version)
        if new != path and writing.exists(self._root, new):
            self._refuse_file(tool, new)
        writing.replace(self._root, path, tool_text(tool))
        self._done(tool)
        if new != path:
            with suppress(OSError):
                writing.rename(self._root, path, new)
                path, old = new, path
                self._changes.drop(old)
        self._changes.put_tool(tool, path, self._stamp(path))

    def remove_tool(self, path: str) -> None:
        try:
            writing.remove(self._root, path)
        except FileNotFoundError:
            raise IndexOutOfDate from None
        self._done(None)
        self._changes.drop(path)

    # What is built in

    def overlay(self) -> Overlay:
        if not writing.exists(self._root, OVERLAY):
            return Overlay()
        return self._read(OVERLAY, lambda data, stamp: read_overlay(data))

    def replace_overlay(self, overlay: Overlay, switched: Iterable[tuple[Bundle, Sequence[Tool]]], result: Any) -> None:
        (writing.replace if writing.exists(self._root, OVERLAY) else writing.create)(
            self._root, OVERLAY, overlay_text(overlay)
        )
        self._done(result)
        self._changes.built_in(switched, others=switches_text(overlay))

    # How it is done

    def _done(self, result: Any) -> None:
        self.is_done, self.result = True, result

    def _add_folder(self, bundle: Bundle, files: list[tuple[str, bytes]]) -> str:
        for folder in bundle_folders(bundle.slug, bundle.id):
            try:
                writing.create_folder(self._root, folder, files)
            except FileExistsError:
                if self._is_in_the_way(folder, bundle):
                    advice = "its bundle.json can't be used: mend it, or move it away"
                    raise ConflictError(f"bundles/{folder} is in the way: {advice}", "broken") from None
            else:
                return folder
        raise ConflictError(f"there are folders for a bundle {bundle.id} already: move them away", "exists")

    def _is_in_the_way(self, folder: str, bundle: Bundle) -> bool:
        """Whether that folder may be this bundle's own, and not that of another one with a similar id."""
        try:
            return self._bundle(folder).id == bundle.id
        except (IndexOutOfDate, BrokenFileError):
            return True

    def _refuse_file(self, tool: Tool, path: str) -> None:
        """Refuse to overwrite a file that the index does not know: a killed process may have left it, or a user has put
        it there.
        """
        found = self._tool(tool.bundle_id, path)
        if (found.slug, found.version) == (tool.slug, tool.version):
            raise ConflictError(f"there is a tool {tool.slug}@{tool.version} already", "exists")
        raise ConflictError(
            f"bundles/{path} is in the way: it says of itself that it is {found.slug}@{found.version}", "exists"
        )

    def _bundle(self, folder: str) -> Bundle:
        return self._read(bundle_file(folder), lambda data, stamp: read_bundle_file(data, folder, stamp.mtime_ns))

    def _tool(self, bundle_id: str, path: str) -> Tool:
        folder = folder_of(path)
        return self._read(path, lambda data, stamp: read_tool_file(data, bundle_id, folder, stamp.mtime_ns))

    def _read(self, path: str, understand: Callable[[bytes, Stamp], T]) -> T:
        try:
            return understand(*disk.read_bytes(path, self._root))
        except FileNotFoundError:
            raise IndexOutOfDate from None
        except InvalidError as error:
            raise BrokenFileError(path, error) from None

    def _stamp(self, path: str) -> Stamp:
        return disk.stamp_of(self._root.stat(path))
