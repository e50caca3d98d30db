"""For `onetool check`: tools of bundles that can't run as they are, and what they lack. All of them are looked at."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onetool.core.errors import Mistake

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.model import Bundle, Tool

CREDENTIALS = ("value", "password", "secret", "clientSecret", "refreshToken")  # of `auth`


def bundle_mistakes(app: "App") -> list[Mistake]:
    bundles, tools = app.bundles.store.everything()
    names = {bundle.id: bundle for bundle in bundles if bundle.soft_deleted_at is None}
    of: dict[str, list[Tool]] = {}
    for tool in tools:
        of.setdefault(tool.bundle_id, []).append(tool)
    return [one for id, bundle in names.items() if id in of for one in _of_bundle(app, bundle, of[id])]


def _of_bundle(app: "App", bundle: "Bundle", tools: "list[Tool]") -> Iterator[Mistake]:
    from onetool.interfaces.cli.bundles.needs import needs_of
    from onetool.sources.bundles.errors import Invalid
    from onetool.sources.bundles.model import shown

    for tool in tools:
        key = f"bundles.{bundle.slug}/{tool.slug}@{tool.version}"
        try:
            app.bundles.check(tool)
        except Invalid as wrong:
            gone = tool.type in ("python", "go")  # it comes back with its function
            place = app.bundles.store.place(tool.id)
            yield Mistake(message=str(wrong), file=place, key=key, severity="warning" if gone else "error")
        if written := _written(tool.http_impl):
            message = f"auth.{written} is written into the tool, where everybody reads it who gets its file"
            yield Mistake(message=message, key=key, hint="name a secret: ${NAME}", severity="warning")
    needs = needs_of(app, [shown(tool) for tool in tools if tool.is_enabled] if bundle.is_enabled else [])
    yield from _lacks(bundle, "needs the secret {}, which is not set", "onetool auth set {}", needs.unset())
    entry = "add it to allowedHosts in the config"
    yield from _lacks(bundle, "calls {}, which is not allowed", entry, needs.closed())


def _lacks(bundle: "Bundle", message: str, hint: str, names: Iterable[str]) -> Iterator[Mistake]:
    for name in names:
        key = f"bundles.{bundle.slug}"
        yield Mistake(message=message.format(name), key=key, hint=hint.format(name), severity="warning")


def _written(impl: dict[str, Any] | None) -> str | None:
    """Which credential is no placeholder."""
    auth = ((impl or {}).get("request") or {}).get("auth") or {}
    return next((key for key in CREDENTIALS if auth.get(key) and "${" not in auth[key]), None)
