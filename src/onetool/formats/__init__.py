"""ToolSpec -> the shape that a model's API or an MCP client takes.

Nothing here knows a client library: these are plain dicts, ready for JSON.
"""

from collections.abc import Iterable
from typing import Any

from onetool.core.spec import ToolSpec
from onetool.formats.names import ProviderNames
from onetool.formats.providers import PROVIDERS, find_provider

__all__ = ["PROVIDERS", "ProviderNames", "provider_tools"]


def provider_tools(
    specs: Iterable[ToolSpec], provider: str, *, allowed: Iterable[str] | None = None, merge: bool = False
) -> list[dict[str, Any]]:
    """The tools as `provider` takes them, in their order; with `allowed`, only those of these names.

    `merge` puts all into one object where the provider has such a form (Gemini). The result is the caller's own.
    """
    specs = list(specs)
    form = find_provider(provider)
    names = ProviderNames(specs, provider)  # of all, so that leaving tools out renames none
    wanted = None if allowed is None else set(allowed)
    tools = [form.shape(spec, names.to_provider(spec.name)) for spec in specs if wanted is None or spec.name in wanted]
    return form.merged(tools) if merge and form.merged else tools
