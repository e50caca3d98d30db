"""The packs that come with OneTool."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from onetool.core.spec import Handler, ToolSpec
from onetool.sdk.pack import tools_of

BUILTIN = ("time", "tools", "shell", "fs")


def builtin_tools(pack: str) -> tuple[ToolSpec, ...]:
    return tools_of(import_module(f"onetool.packs.{pack}")).tools


class BuiltinFunctions(Mapping[str, Handler]):
    """The built-in packs' functions by tool name; a pack is imported when one of its names is asked for."""

    def __getitem__(self, name: str) -> Handler:
        pack = name.partition(".")[0]
        if pack in BUILTIN:
            for spec in builtin_tools(pack):
                if spec.name == name and spec.handler is not None:
                    return spec.handler
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for pack in BUILTIN for spec in builtin_tools(pack))

    def __len__(self) -> int:
        return sum(1 for _ in self)
