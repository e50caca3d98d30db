"""Tools as a model's provider takes them, written out once for however many steps."""

from collections.abc import Iterable
from typing import Any

import msgspec

from onetool.core.halves import all_mended
from onetool.core.spec import ToolSpec
from onetool.core.tokens import tokens
from onetool.formats import ProviderNames, provider_tools


class Toolset:
    """The tools that a model is shown. `others` exist, too: it may call one by its name, and is told about that one."""

    def __init__(self, specs: Iterable[ToolSpec] = (), others: Iterable[ToolSpec] = ()) -> None:
        self.specs = tuple(specs)
        self._others = others
        self._names: dict[str, ProviderNames] = {}
        self._written: dict[str, msgspec.Raw] = {}
        self._tokens: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.specs)

    def names(self, provider: str) -> ProviderNames:
        """Both ways between the tools' names and the provider's spelling."""
        if provider not in self._names:
            self._names[provider] = ProviderNames(self.specs, provider, self._others)
        return self._names[provider]

    def written(self, provider: str) -> msgspec.Raw:
        """The list that the provider takes, as JSON that can stand in a larger body."""
        if provider not in self._written:
            shaped = provider_tools(self.specs, provider, merge=True)
            self._written[provider] = msgspec.Raw(_encoded(shaped))
        return self._written[provider]

    def tokens(self, provider: str) -> int:
        """About how many a model reads for them."""
        if provider not in self._tokens:
            self._tokens[provider] = tokens(bytes(self.written(provider)).decode()) if self.specs else 0
        return self._tokens[provider]


def _encoded(tools: list[dict[str, Any]]) -> bytes:
    try:
        return msgspec.json.encode(tools)
    except (ValueError, OverflowError):  # half of a character in somebody's description, a number of any length
        import json

        return json.dumps(all_mended(tools)).encode()


NO_TOOLS = Toolset()
