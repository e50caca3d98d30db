"""Which addresses there are below /tools, what each takes, and who answers."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from onetool.interfaces.asgi import Scope
from onetool.interfaces.rest import bundles, invoke, tools
from onetool.interfaces.rest import query as q
from onetool.interfaces.rest.asking import Answer, Ask
from onetool.interfaces.rest.problem import Wrong
from onetool.interfaces.rest.query import Parameter, decoded
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.names import check_id, check_slug, check_version

ROOT = "/tools"
LONGEST_KEPT = 512  # bytes of an address that is worth remembering

Handler = Callable[[Ask], Awaitable[Answer | None]]


class Way(NamedTuple):
    """One method at one address."""

    answer: Handler
    parameters: Mapping[str, Parameter] = {}


class Place(NamedTuple):
    """An address, with {names} where something of the client's stands."""

    template: str
    ways: Mapping[str, Way]

    @property
    def segments(self) -> list[str]:
        return self.template.split("/")[1:]

    def takes(self, without: Collection[str] = ()) -> str:
        """What Allow says."""
        ways = [method for method in self.ways if method not in without]
        return ", ".join([*ways, *(["HEAD"] if "GET" in self.ways else []), "OPTIONS"])


class Found(NamedTuple):
    place: Place
    path: tuple[str, ...]
    way: Way | None  # none: OPTIONS


def _with(answer: Handler, *parameters: Parameter) -> Way:
    return Way(answer, {one.name: one for one in parameters})


_LIST = (q.BUNDLE_IDS, q.INCLUDE_DISABLED)
_TOOL = "/bundles/{bundleID}/tools/{toolSlug}/version/{version}"

PLACES = (
    Place("/bundles", {"GET": _with(bundles.list_bundles, *_LIST, q.PAGE_SIZE, q.PAGE_TOKEN)}),
    Place(
        "/bundles/{bundleID}",
        {
            "GET": Way(bundles.get_bundle),
            "PUT": Way(bundles.put_bundle),
            "PATCH": Way(bundles.patch_bundle),
            "DELETE": Way(bundles.delete_bundle),
        },
    ),
    Place(
        _TOOL,
        {
            "GET": Way(tools.get_tool),
            "PUT": Way(tools.put_tool),
            "PATCH": Way(tools.patch_tool),
            "DELETE": Way(tools.delete_tool),
        },
    ),
    Place(f"{_TOOL}/invoke", {"POST": Way(invoke.invoke)}),
    Place("/tools", {"GET": _with(tools.list_tools, q.TAGS, *_LIST, q.RECOMMENDED_PAGE_SIZE, q.PAGE_TOKEN)}),
    Place("/tools/search", {"GET": _with(tools.search_tools, q.Q, q.INCLUDE_DISABLED, q.PAGE_SIZE, q.PAGE_TOKEN)}),
)

_CHECKS = {"{bundleID}": check_id, "{toolSlug}": check_slug, "{version}": check_version}
_BY_LENGTH: dict[int, list[Place]] = {}
for _place in PLACES:
    _BY_LENGTH.setdefault(len(_place.segments), []).append(_place)


def find(raw: bytes, method: str) -> Found:
    """`raw` is the path as it was sent. Wrong where there is nothing, or not for this method."""
    return _kept(raw, method) if len(raw) <= LONGEST_KEPT else _find(raw, method)


def finds(scope: Scope) -> Found:
    """The same for the site, which asks before it refuses a body."""
    return find(scope["raw_path"], scope["method"])


def _find(raw: bytes, method: str) -> Found:
    try:
        segments = [decoded(piece) for piece in raw.split(b"/")[2:]]  # of /tools/…
    except ValueError as error:
        raise Wrong(400, "bad_path", f"The path can't be read: {error}.", part="path", pointer="") from None
    place = next((one for one in _BY_LENGTH.get(len(segments), ()) if _fits(one, segments)), None)
    if place is None:
        there = ", ".join(ROOT + one.template for one in PLACES)
        shown = raw[:100].decode("latin-1")
        raise Wrong(404, "not_found", f"There is nothing at {shown!r}; there are {there}")
    way = place.ways.get("GET" if method == "HEAD" else method)
    if way is None and method != "OPTIONS":
        message = f"{ROOT}{place.template} takes {place.takes()}, not {method[:20]}."
        raise Wrong(405, "method_not_allowed", message, headers=[(b"allow", place.takes().encode())])
    return Found(place, _checked(place, segments), way)


_kept = lru_cache(1024)(_find)


def _fits(place: Place, segments: list[str]) -> bool:
    return all(ours == theirs or ours in _CHECKS for ours, theirs in zip(place.segments, segments, strict=True))


def _checked(place: Place, segments: list[str]) -> tuple[str, ...]:
    values: list[str] = []
    for name, value in zip(place.segments, segments, strict=True):
        if (check := _CHECKS.get(name)) is not None:
            try:
                values.append(check(value))
            except Invalid as error:
                raise Wrong(400, "bad_path", str(error), part="path", pointer=f"/{name[1:-1]}") from None
    return tuple(values)
