"""What the app tells of itself: one tool with its schemas and facts, and whether everything that should be there is."""

import os
import platform
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from onetool._version import __version__
from onetool.core.json_data import freeze
from onetool.core.principal import current_principal, stats_caller

if TYPE_CHECKING:
    from onetool.app.bundles import AppBundles
    from onetool.app.catalog import ToolCatalog
    from onetool.app.runtime import Runtime
    from onetool.core.errors import ConfigError
    from onetool.core.registry import Snapshot

NO_SERVERS = freeze({"status": "ok", "server_count": 0, "servers": {}})
FACTS = ("calls", "success_rate", "median_ms", "last_called")


def tool_info(
    name: str, allowed: Collection[str] | None, catalog: "ToolCatalog", runtime: "Runtime", bundles: "AppBundles"
) -> dict[str, Any] | None:
    """One tool's schemas and run-time facts, or None."""
    snapshot = catalog.current_snapshot()
    spec = catalog.registry.get(catalog.real_name(name))
    if spec is None:
        return None
    return {
        **spec.summary(),
        "outputSchema": spec.output_schema,
        **({"inferredOutput": spec.seen.schema()} if spec.seen else {}),
        "signature": tool_signature(snapshot, spec.name),
        "source": spec.source,
        "definedIn": spec.defined_in or bundles.file_of(spec),
        **({"requires": [need.to_dict() for need in spec.requires]} if spec.requires else {}),
        "allowed": allowed is None or spec.name in allowed,
        "enabled": spec.enabled,
        **(runtime.stats.facts(spec.name, stats_caller()) if runtime.stats else dict.fromkeys(FACTS)),
    }


def tool_signature(snapshot: "Snapshot", name: str) -> str | None:
    """The signature of a tool, under the name that code calls it by."""
    from onetool.core.signature import signature
    from onetool.script.names import ScriptNames

    spec = snapshot.get(name)
    return None if spec is None else signature(spec, ScriptNames(snapshot).spelling(spec))


def health(
    allowed: Collection[str] | None, catalog: "ToolCatalog", runtime: "Runtime", reload_error: "ConfigError | None"
) -> dict[str, Any]:
    """Whether everything that should be there is there. Under an allow-list nothing else is named. What is wrong names
    files, hosts and other callers: it is for those who may change something.
    """
    mistakes = catalog.mistakes
    sees_all = allowed is None and current_principal.get().may("edit")
    return {
        "version": __version__,
        "python": platform.python_version(),
        "cwd": os.getcwd(),
        "registry": {
            "status": "degraded" if any(one.severity == "error" for one in mistakes) else "ok",
            "tool_count": len(catalog.registry) if allowed is None else len(catalog.tools(allowed)),
            **({"mistakes": [str(one) for one in mistakes]} if mistakes and sees_all else {}),
        },
        "proxy": NO_SERVERS if catalog.servers is None else catalog.servers.health(allowed),
        **({"audit": audit} if (audit := runtime.audit_health()) and sees_all else {}),
        **({"stats": stats} if (stats := runtime.stats_health()) and sees_all else {}),
        **({"trust": str(catalog.untrusted)} if catalog.untrusted else {}),
        **({"reload": f"failed: {runtime.redact(str(reload_error))}"} if reload_error and sees_all else {}),
    }
