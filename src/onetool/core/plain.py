"""Only plain data leaves a tool: what a handler returns becomes JSON types, here and nowhere else.

A value looks the same to every reader, whether the tool ran in this process or behind a wire. Dates become ISO text,
bytes become base64, dataclasses, enums, sets and models become what JSON has for them.
"""

from os import PathLike, fspath
from typing import Any

import msgspec

from onetool.core.errors import ToolFailure


def plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_model)
    except RecursionError:
        raise ToolFailure("returned data that is nested too deep or contains itself", reason="output_invalid") from None
    except (TypeError, ValueError) as error:
        raise ToolFailure(f"returned something that is not data: {error}", reason="output_invalid") from None


def _model(value: Any) -> Any:
    """What the encoder does not know: paths, and models of other libraries that can dump themselves."""
    if isinstance(value, str):
        return str.__str__(value)  # a subclass, such as a secret from the settings
    if isinstance(value, PathLike):
        return fspath(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON; return text, numbers, lists or dicts")
