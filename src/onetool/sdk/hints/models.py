"""Pydantic's models and types: they describe and convert themselves.

Pydantic is imported here only when a hint comes from it, and then it is loaded already.
"""

from typing import Any

import msgspec

from onetool.sdk.hints.definitions import REF, adopt, identifier
from onetool.sdk.hints.form import Form, Hints, NoForm, Schema, Wrong, hint_text

_HOOK = "__get_pydantic_core_schema__"


def is_model(cls: type) -> bool:
    return hasattr(cls, _HOOK) or hasattr(cls, "__pydantic_validator__")


def is_foreign_rule(fact: Any) -> bool:
    """Something in Annotated that only pydantic can carry out, such as a validator."""
    return hasattr(fact, _HOOK)


def model(hints: Hints, hint: Any) -> Form:
    from pydantic import TypeAdapter, ValidationError

    try:
        adapter: Any = TypeAdapter(hint)
        schema = _schema(adapter, hint, hints.outgoing)
    except Exception as error:  # noqa: BLE001 - pydantic has a dozen; each means that it can't be described
        raise NoForm(hint, f"pydantic says: {str(error).splitlines()[0]}") from None

    def convert(value: Any) -> Any:
        try:
            # As JSON, not as Python data: a strict model takes a date from text in the one, and not in the other.
            return adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            raise _wrong(error) from None

    return Form(adopt(hints.definitions, identifier(hint_text(hint)), schema), convert)


def _schema(adapter: Any, hint: Any, outgoing: bool) -> Schema:
    """`core.plain` dumps a model by its fields' own names, unless the model says otherwise."""
    by_alias = not outgoing or bool(getattr(hint, "model_config", {}).get("serialize_by_alias"))
    mode = "serialization" if outgoing else "validation"
    return adapter.json_schema(ref_template=REF + "{model}", mode=mode, by_alias=by_alias)


def _wrong(error: Any) -> Wrong:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    words: str = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return Wrong("", said=words.replace("Input should be", "expected", 1), path=tuple(first["loc"]))
