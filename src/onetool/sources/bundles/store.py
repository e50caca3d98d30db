"""`BundleStore` is the protocol of a store of bundles; `Visibility` is what a client may see of one.

All methods block and may be called from any thread. Writes are durable when they return; they are refused by raising a
BundleError, and then nothing has changed. Built-in bundles are given to a store when it is opened: it lists and finds
them as all others, keeps only their switches, and refuses every other change.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from operator import attrgetter
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from onetool.core.errors import Mistake
from onetool.core.spec import ToolSpec
from onetool.services.event_queue import Recorder
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent, ToolExample, unpack_tool
from onetool.sources.bundles.names import code_name, slug_of_code

if TYPE_CHECKING:
    from onetool.services.search.postings import Words

ETag = str
"""What a client knows of the state of a thing: an ETag without its quotes; "*" stands for any that is there."""

in_a_hurry = ContextVar("in_a_hurry", default=False)
"""Whether an event loop's caller waits for this thread: then a busy store is waited for a moment only."""


class Rank(NamedTuple):
    """Where a tool stands among those that a search finds: lower comes first. It depends on nothing but that tool."""

    tier: int
    score: float  # inside the tier; lower is better
    age: int  # minus its time in ms
    id: str


class SearchHit(NamedTuple):
    rank: Rank
    tool: Tool


class KnownTool(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What is in memory of each tool that is not built-in."""

    id: str
    bundle_id: str
    own: str  # its slug as code says it, which its pack has it by: one text for both
    version: str
    is_enabled: bool
    function: str | None  # that it stands for
    bodies: bytes  # of all tools that were read together with it
    start: int  # of its own among them
    size: int

    @property
    def body(self) -> bytes:
        """Its JSON, packed."""
        return self.bodies[self.start : self.start + self.size]

    @property
    def slug(self) -> str:
        return slug_of_code(self.own)

    def tool(self) -> Tool:
        return unpack_tool(self.body)


class ToolKind(NamedTuple):
    version: str
    is_enabled: int
    function: str | None  # that it stands for


class BundleRows(msgspec.Struct, frozen=True, gc=False, eq=False):
    """All tools of one bundle that are not built-in, as an index gives them: in one piece, until somebody looks."""

    bundle_id: str
    kinds: Mapping[ToolKind, int]  # how many there are of each
    heads: str  # JSON: of each tool its id, slug, version, whether it is enabled, function, and the size of its body
    bodies: bytes  # one after the other

    def count(self, counts: "Callable[[ToolKind], object]" = lambda _: True) -> int | None:
        """How many names stand for tools of such kinds. None where a name may have several versions."""
        if len({kind.version for kind in self.kinds}) > 1:
            return None
        return sum(size for kind, size in self.kinds.items() if counts(kind))

    def tools(self) -> list[KnownTool]:
        """In the order of their ids."""
        found, start = list[KnownTool](), 0
        for id, slug, version, enabled, function, size in _read_heads(self.heads):
            known = (id, self.bundle_id, code_name(slug), intern(version), bool(enabled), function and intern(function))
            found.append(KnownTool(*known, self.bodies, start, size))
            start += size
        return sorted(found, key=attrgetter("id"))


_read_heads = msgspec.json.Decoder(list[tuple[str, str, str, int, str | None, int]]).decode

read_tool = msgspec.json.Decoder(Tool).decode

SeenRevision = tuple[int, int]
"""Which index, and its revision."""


class ToolChanges(NamedTuple):
    """What has changed of bundles and tools that are not built-in, in one snapshot."""

    seen: SeenRevision | None  # to be given the next time; None: ask for everything then
    is_whole: bool  # there is nothing else
    bundles: list[Bundle]
    tools: Sequence[KnownTool] = ()
    gone_bundles: Sequence[str] = ()
    gone_tools: Sequence[str] = ()
    everything: Sequence[BundleRows] = ()  # instead of `tools`, if it is whole
    functions: frozenset[str] = frozenset()  # that some of these, or of `tools`, stand for


class BundleStore(Protocol):
    # Reading. Lists come in the order of the ids, from behind `after` on.

    def bundle(self, id: str) -> Bundle | None: ...

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]: ...

    def bundles_of(self, ids: Iterable[str]) -> Mapping[str, Bundle]:
        """Those of them that are there, by their ids, and maybe others; also what is switched off."""
        ...

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None: ...

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        """All versions of one tool, in any order."""
        ...

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]: ...

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]: ...

    function: Callable[[str], ToolSpec | None]
    """Returns a function by its name: tools are searched by what they leave to their functions, too."""

    def searched(self) -> "Words":
        """The words of the tools that are kept, as they are now, for whoever ranks them in another way."""
        ...

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        """All bundles and tools that are not built-in, in one snapshot."""
        ...

    def changes(self, seen: SeenRevision | None) -> ToolChanges:
        """What has changed since then; all there is, where nobody knows."""
        ...

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        """The bundles that are derived from the catalogue, with their switches."""
        ...

    def are_all_on(self) -> bool:
        """Whether nobody has ever switched one of these."""
        ...

    def built_in_mark(self) -> str:
        """Another one where the built-in bundles, or what people have set of them, are others; empty: nobody knows."""
        ...

    def file_of(self, tool_id: str) -> str | None:
        """The file that a tool stands in, if it does."""
        ...

    def mistakes(self) -> list[Mistake]:
        """What lies there and can't be used: each with its path and the reason."""
        ...

    # Writing. `match` is the tag that the caller has seen, if that matters to it.

    def put_bundle(
        self, id: str, content: BundleContent, match: ETag | None = None, create_only: bool = False
    ) -> tuple[Bundle, bool]:
        """The bundle, and whether it is new. Of one that is soft-deleted this is the way back."""
        ...

    def patch_bundle(self, id: str, is_enabled: bool, match: ETag | None = None) -> Bundle: ...

    def delete_bundle(self, id: str, match: ETag | None = None) -> None: ...

    def put_tool(self, bundle_id: str, slug: str, version: str, content: ToolContent) -> Tool: ...

    def put_tools(
        self, bundle_id: str, tools: Iterable[tuple[str, str, ToolContent]], content: BundleContent | None = None
    ) -> list[Tool]:
        """Tools (slug, version, content) into a bundle that is there, and that bundle's own content; all or nothing.

        With `content`, a bundle that is soft-deleted comes back.
        """
        ...

    def patch_tool(
        self, bundle_id: str, slug: str, version: str, is_enabled: bool, match: ETag | None = None
    ) -> Tool: ...

    def put_examples(
        self, bundle_id: str, slug: str, version: str, examples: tuple[ToolExample, ...], match: ETag | None = None
    ) -> Tool:
        """Also of tools that are built in or derived. It is no change that `modified_at` is about."""
        ...

    def rename_tool(
        self, bundle_id: str, slug: str, version: str, new_slug: str, new_version: str, match: ETag | None = None
    ) -> Tool:
        """The same tool, with its id and its usage, under another slug or version of its bundle."""
        ...

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None: ...

    def put_all(self, bundle: Bundle, tools: Iterable[Tool]) -> None:
        """A whole bundle that is not there yet, as it comes out of an archive; all of it or nothing."""
        ...

    def reap(self) -> list[str]:
        """Remove bundles that were soft-deleted more than two days ago and are still empty; their ids."""
        ...

    # Usage. Told at any time from any thread, written later; nobody waits for it.

    def follow_calls(self, recorder: Recorder) -> None:
        """Have uses written by the thread of the recorder. Whoever reads them waits for its events."""
        ...

    def record_use(self, tool_id: str) -> None: ...

    def usage(self, tool_ids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """callCount and lastCalledAt of those that were ever called."""
        ...

    # Keeping in step

    def sync(self) -> bool:
        """Sync with changes from outside; whether anything differs."""
        ...

    def catch_up(self) -> None:
        """See what others have written until now. Cheap; where nobody can tell, it stays as it was known last."""
        ...

    def watch(self, call: Callable[[], None]) -> None:
        """Call it, in any thread, when others may have changed something, until this is closed: it should `sync`.

        A store that nothing tells of changes never calls it.
        """
        ...

    def state(self) -> int:
        """A number that changes with every visible change. Cheap."""
        ...

    def stamp(self) -> Hashable:
        """Differs after every change by anybody. It never blocks; None where only `state` tells."""
        ...

    def key(self) -> bytes:
        """A secret of this place, the same for all who use it: what seals page tokens."""
        ...

    def close(self) -> None: ...


def tag_of(thing: Bundle | Tool) -> ETag:
    """An ETag of the content."""
    from hashlib import sha256

    return sha256(msgspec.json.encode(thing, order="deterministic")).hexdigest()[:24]


# Visibility


NameOf = Callable[[Bundle, Tool], str]
MOST_TOOLS_OF_BUNDLE = 1_000_000  # tools of one bundle: all of them


class Visibility:
    """Everything is visible."""

    def tool(self, tool: Tool) -> bool:
        return True

    def bundle(self, bundle: Bundle) -> bool:
        return True


class AllowedOnly(Visibility):
    """Only tools of an allow-list, and their bundles. Compared by the names that calls are allowed under, so that lists
    and calls agree.
    """

    def __init__(self, store: BundleStore, name_of: NameOf, allowed: Collection[str]) -> None:
        self._store = store
        self._name_of = name_of
        self._allowed = frozenset(allowed)
        self._packs = {name.partition(".")[0] for name in self._allowed}
        self._ids = {name.partition("/")[0] for name in self._allowed}
        self._bundles: dict[str, Bundle | None] = {}  # of one page there are few

    def tool(self, tool: Tool) -> bool:
        if tool.bundle_id not in self._bundles:
            self._bundles[tool.bundle_id] = self._store.bundle(tool.bundle_id)
        bundle = self._bundles[tool.bundle_id]
        return bundle is not None and self._may_have(bundle) and self._name_of(bundle, tool) in self._allowed

    def bundle(self, bundle: Bundle) -> bool:
        if not self._may_have(bundle):
            return False
        return any(map(self.tool, self._store.tools((), [bundle.id], True, None, MOST_TOOLS_OF_BUNDLE)))

    def _may_have(self, bundle: Bundle) -> bool:
        """Whether the bundle may have allowed tools, by its name: most bundles need no look at their tools."""
        return bundle.source is not None or code_name(bundle.slug) in self._packs or bundle.id in self._ids


EVERYTHING = Visibility()
