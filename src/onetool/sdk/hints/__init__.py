"""Type hints -> what a caller sees (JSON Schema), and how its JSON becomes what the function asks for.

`Reader().form(hint)` is the door; one file for each kind of hint is behind it:

reader       which kind a hint is; `definitions` that are written once; `names` that are text
scalars      text, numbers, and what JSON writes as text: dates, paths, ids, bytes
choices      Literal and Enum
containers   list, tuple, set, dict and their relatives
unions       alternatives
constraints  Annotated
property     a parameter or a field: a form with a description and a default
fields       of a dataclass, TypedDict, NamedTuple, msgspec.Struct; `records` makes forms of them
models       pydantic's, which describe and convert themselves
"""

from onetool.sdk.hints.form import Form, NoForm, Wrong
from onetool.sdk.hints.reader import Reader

__all__ = ["Form", "NoForm", "Reader", "Wrong"]
