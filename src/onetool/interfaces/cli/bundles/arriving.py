"""One import: bytes -> what would change -> the store. A ZIP archive of a bundle, or an OpenAPI document.

What is wrong with the whole refuses it; an operation of a document that can't be a tool is skipped, and told.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.interfaces.cli.bundles.changing import live_of
from onetool.interfaces.cli.bundles.whole import made

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.archive import Plan
    from onetool.sources.bundles.model import Bundle, Tool
    from onetool.sources.bundles.store import Store

Progress = Callable[[int, int], None]
"""How many are done, of how many."""

PAGE = 1000


class Remark(NamedTuple):
    about: str
    why: str


class Arrival(NamedTuple):
    plan: "Plan"
    tools: "list[Tool]"  # all that came
    skipped: list[Remark]  # what is no tool
    notes: list[Remark]  # what is not quite as it was


class Wishes(NamedTuple):
    """What who imports says about it."""

    slug: str | None = None
    base_url: str | None = None
    document_url: str | None = None
    token: bool = False


def is_archive(data: bytes) -> bool:
    return data[:2] == b"PK"


def read_arrival(app: "App", data: bytes, wishes: Wishes) -> Arrival:
    """Nothing is changed. Raises Invalid for what can't be read."""
    return _of_archive(app, data, wishes) if is_archive(data) else _of_document(app, data, wishes)


def take_in(app: "App", arrival: Arrival, progress: Progress) -> list[Remark]:
    """Put it into the store. What can't be called here yet is told: its function or its packs may come later."""
    from onetool.sources.bundles.errors import Invalid
    from onetool.sources.bundles.model import BundleContent

    plan, store = arrival.plan, app.bundles.store
    if plan.is_new:
        store.put_all(plan.bundle, plan.new_tools)
    else:
        if plan.rows[0].what == "changed":
            store.put_bundle(plan.bundle.id, _content(plan.bundle, BundleContent))
        _put_each(store, plan, progress)
    remarks: list[Remark] = []
    for tool in plan.new_tools:
        if tool.type == "http":  # checked before, and it depends on nothing but itself
            continue
        app.in_step()  # a script may call what came with it
        try:
            app.bundles.check(tool)
        except Invalid as error:
            remarks.append(Remark(f"{tool.slug}@{tool.version}", f"it can't be called yet: {error}"))
    return remarks


def _of_archive(app: "App", data: bytes, wishes: Wishes) -> Arrival:
    from msgspec.structs import replace

    from onetool.sources.bundles.archive import plan, unpack
    from onetool.sources.bundles.names import check_slug

    unpacked = unpack(data)
    here: Bundle | None = None
    if unpacked.bundle is not None:
        if wishes.slug is not None:
            unpacked = unpacked._replace(bundle=replace(unpacked.bundle, slug=check_slug(wishes.slug)))
        else:
            here = app.bundles.store.bundle(unpacked.bundle.id)
    planned = plan(unpacked, here, tools_of(app, here), as_new=wishes.slug is not None)
    wrong = [f"{tool.slug}@{tool.version}: {why}" for tool in planned.new_tools if (why := _why_not(app, tool))]
    if planned.is_new and (other := live_of(app.bundles, planned.bundle.slug)):
        wrong.append(f"there is a bundle {other['slug']} already ({other['id']}); give it another name: --as SLUG")
    return Arrival(planned._replace(refused=[*planned.refused, *wrong]), unpacked.tools, [], [])


def _of_document(app: "App", data: bytes, wishes: Wishes) -> Arrival:
    from onetool.sources.bundles.archive import Unpacked, plan
    from onetool.sources.bundles.openapi import from_openapi

    found = from_openapi(
        data, document_url=wishes.document_url, base_url=wishes.base_url, slug=wishes.slug, token=wishes.token
    )
    other = live_of(app.bundles, found.bundle["slug"])
    here = None if other is None else app.bundles.store.bundle(other["id"])
    bundle, tools = made(found.bundle, found.tools, id=here.id if here else None)
    planned = plan(Unpacked(bundle, tools, []), here, tools_of(app, here))
    refused = [] if tools else ["none of its operations can be a tool"]
    return Arrival(
        planned._replace(refused=[*planned.refused, *refused]),
        tools,
        [Remark(*one) for one in found.skipped],
        [Remark(*one) for one in found.notes],
    )


def _why_not(app: "App", tool: "Tool") -> str | None:
    from onetool.sources.bundles.errors import Invalid

    try:
        if tool.type == "http":
            app.bundles.check(tool)
    except Invalid as error:
        return str(error)
    return None


def tools_of(app: "App", bundle: "Bundle | None") -> "list[Tool]":
    found: list[Tool] = []
    while bundle is not None:
        page = app.bundles.store.tools((), [bundle.id], True, found[-1].id if found else None, PAGE)
        found += page
        if len(page) < PAGE:
            break
    return found


def _put_each(store: "Store", plan: "Plan", progress: Progress) -> None:
    from onetool.sources.bundles.model import ToolContent

    for number, tool in enumerate(plan.new_tools):
        store.put_tool(plan.bundle.id, tool.slug, tool.version, _content(tool, ToolContent))
        progress(number + 1, len(plan.new_tools))


def _content(thing: "Bundle | Tool", shape: type) -> Any:
    """What a person gives of it."""
    return shape(**{name: getattr(thing, name) for name in shape.__struct_fields__})
