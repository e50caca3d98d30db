"""Everything that is wrong with the config and the tools: what `onetool check` and `GET /check` say."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onetool.app.audit import audit_mistakes
from onetool.app.bundles import is_unread_store
from onetool.core.errors import Mistake
from onetool.sdk.requirements import Report
from onetool.sdk.requirements import check as check_requirements

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.model import Bundle, Tool


def findings(app: "App") -> tuple[tuple[Mistake, ...], Report]:
    """What is wrong, and what tools need."""
    report = check_requirements({spec.name: spec.requires for spec in app.catalog.registry if spec.requires})
    of_database = _database_mistakes(app)
    of_tools = (one for one in app.mistakes if not (of_database and is_unread_store(one)))  # it would say the same
    return (
        *app.config.warnings,
        *of_tools,
        *_missing(report),
        *bundle_mistakes(app),
        *audit_mistakes(app.config),
        *of_database,
        *(() if app.config.cluster is None else app.config.cluster.unset()),
    ), report


def _database_mistakes(app: "App") -> list[Mistake]:
    if app.config.database is None:
        return []
    from onetool.app.database_state import database_mistakes

    return database_mistakes(app.config)


def _missing(report: Report) -> list[Mistake]:
    """Warnings for missing requirements; each affects only its own tools."""
    return [
        Mistake(
            message=f"needs {found['name']}, which is {found['status']}",
            key=tool,
            hint=found["install"],
            severity="warning",
        )
        for tool, needs in report.items()
        for found in needs
        if found["status"] != "ok"
    ]


# Tools of bundles that can't run as they are, and what they lack


CREDENTIALS = ("value", "password", "secret", "clientSecret", "refreshToken")  # of `auth`


def bundle_mistakes(app: "App") -> list[Mistake]:
    if app.config.database is None and not (app.config.home / "bundles").is_dir():
        return []
    from onetool.sources.bundles.errors import UnavailableError

    try:
        bundles, tools = app.bundles.store.everything()
    except UnavailableError:  # the database is away, which is told of it
        if app.config.database is None:
            raise
        return []
    names = {bundle.id: bundle for bundle in bundles if bundle.soft_deleted_at is None}
    of: dict[str, list[Tool]] = {}
    for tool in tools:
        of.setdefault(tool.bundle_id, []).append(tool)
    return [one for id, bundle in names.items() if id in of for one in _of_bundle(app, bundle, of[id])]


def _of_bundle(app: "App", bundle: "Bundle", tools: "list[Tool]") -> Iterator[Mistake]:
    from onetool.app.tool_requirements import requirements_of  # brings HTTP: only where there are bundles
    from onetool.sources.bundles.errors import InvalidError
    from onetool.sources.bundles.model import shown

    for tool in tools:
        key = f"bundles.{bundle.slug}/{tool.slug}@{tool.version}"
        try:
            app.bundles.check(tool)
        except InvalidError as wrong:
            gone = tool.type in ("python", "go")  # it comes back with its function
            place = app.bundles.store.file_of(tool.id)
            yield Mistake(message=str(wrong), file=place, key=key, severity="warning" if gone else "error")
        if written := _literal_credential(tool.http_impl):
            message = f"auth.{written} is written into the tool, where everybody reads it who gets its file"
            yield Mistake(message=message, key=key, hint="name a secret: ${NAME}", severity="warning")
    needs = requirements_of(app, [shown(tool) for tool in tools if tool.is_enabled] if bundle.is_enabled else [])
    yield from _lacking(bundle, "needs the secret {}, which is not set", "onetool auth set {}", needs.unset())
    entry = "add it to allowedHosts in the config"
    yield from _lacking(bundle, "calls {}, which is not allowed", entry, needs.closed())


def _lacking(bundle: "Bundle", message: str, hint: str, names: Iterable[str]) -> Iterator[Mistake]:
    for name in names:
        key = f"bundles.{bundle.slug}"
        yield Mistake(message=message.format(name), key=key, hint=hint.format(name), severity="warning")


def _literal_credential(impl: dict[str, Any] | None) -> str | None:
    """Which credential is no placeholder."""
    impl = impl or {}
    auths = [(one.get("request") or {}).get("auth") or {} for one in (impl, *(impl.get("requests") or ()))]
    return next((key for auth in auths for key in CREDENTIALS if auth.get(key) and "${" not in auth[key]), None)
