"""Examples of tools that belong to one owner: kept apart from those of the tool, which all see who see the tool.

One file has the examples of one owner, by the id of the tool. Its name is a hash: an owner's name is no path.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from onetool.core.os_files import open_no_link
from onetool.core.private_file import replace_file
from onetool.core.private_folder import locked_folder
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.model import ToolExample
from onetool.sources.bundles.store import ETag
from onetool.sources.bundles.validation import read_examples

LARGEST_OF_OWNER = 1024 * 1024  # bytes of JSON, of all tools
MOST_OWNERS = 10_000
PATIENCE_S = 10.0  # for others who write

OwnLists = dict[str, tuple[ToolExample, ...]]  # by the id of the tool


class ShownExamples(msgspec.Struct, frozen=True, kw_only=True):
    """The examples of a tool as somebody sees them: those of the tool first, then one's own."""

    examples: tuple[ToolExample, ...]
    own: tuple[str, ...] | UnsetType = UNSET  # names of those that are one's own


class OwnExamples:
    """Kept in `folder`, which is made when it is first needed. All methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, owner: str, tool: str) -> tuple[ToolExample, ...]:
        """Those of one tool. What can't be read raises UnavailableError."""
        return self._read(owner).get(tool, ())

    def put(
        self,
        owner: str,
        tool: str,
        examples: tuple[ToolExample, ...],
        check: Callable[[tuple[ToolExample, ...]], object],
    ) -> None:
        """Replace those of one tool. `check` gets the ones of before, under the lock, and may refuse."""
        try:
            with self._held(owner):
                lists = self._read(owner)
                check(lists.get(tool, ()))
                self._write(owner, {**lists, tool: examples})
        except OSError as error:
            raise UnavailableError(f"your examples can't be kept: {error.strerror or error}") from None

    def _write(self, owner: str, lists: OwnLists) -> None:
        data = msgspec.json.encode({tool: one for tool, one in lists.items() if one})
        if len(data) > LARGEST_OF_OWNER:
            what = f"your examples of all tools would have more than {LARGEST_OF_OWNER:,} bytes"
            raise InvalidError(f"/examples: {what}, which is the most: remove some, or make them shorter", "/examples")
        replace_file(self._file(owner), data)

    def _read(self, owner: str) -> OwnLists:
        try:
            file = open_no_link(self._file(owner), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise UnavailableError(f"your examples can't be read: {error.strerror}") from None
        with os.fdopen(file, "rb") as stream:
            data = stream.read(LARGEST_OF_OWNER + 1)
        try:
            return msgspec.json.decode(data, type=OwnLists)
        except (ValueError, RecursionError):
            raise UnavailableError("your examples can't be read: their file is damaged") from None

    @contextmanager
    def _held(self, owner: str) -> Iterator[None]:
        with locked_folder(self._folder, PATIENCE_S) as folder:
            name = self._file(owner).name
            if sum(one.endswith(".json") and one != name for one in folder.names()) >= MOST_OWNERS:
                raise OSError(f"{MOST_OWNERS:,} callers have examples here, and no more can")
            yield

    def _file(self, owner: str) -> Path:
        name = blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"own examples").hexdigest()
        return self._folder / f"{name}.json"


def shown_examples(common: Sequence[Mapping[str, Any]], own: tuple[ToolExample, ...]) -> dict[str, Any]:
    """As ShownExamples says. One's own takes the place of the tool's example of the same name."""
    names = [one.name for one in own]
    others = [one for one in common if one["name"] not in names]
    return {"examples": [*others, *msgspec.to_builtins(own)], "own": names}


def examples_tag(tag: ETag, own: tuple[ToolExample, ...]) -> ETag:
    """The ETag of both lists. `tag` is that of the tool."""
    return f"{tag}.{blake2b(msgspec.json.encode(own), digest_size=8).hexdigest()}" if own else tag


def read_own_examples(data: Any, common: tuple[Any, ...]) -> tuple[ToolExample, ...]:
    """Of a list that may still have the examples of the tool in it, as a client got them. `common` are these."""
    if not isinstance(data, Mapping) or not isinstance(data.get("examples"), list):
        return read_examples(data)
    sent: dict[str, Any] = {key: value for key, value in data.items() if key != "own"}  # pyright: ignore[reportUnknownVariableType]
    return read_examples({**sent, "examples": [one for one in sent["examples"] if _plain(one) not in common]})


def _plain(example: Any) -> Any:
    """Without what says nothing."""
    if isinstance(example, dict) and example.get("description") == "":  # pyright: ignore[reportUnknownMemberType]
        return {key: value for key, value in example.items() if key != "description"}  # pyright: ignore[reportUnknownVariableType]
    return example  # pyright: ignore[reportUnknownVariableType]
