"""Talking with whoever called the running tool: questions to the person or to the model behind it, and messages.

Asking is for async tools. The time that an answer takes does not count against the tool's deadline.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from onetool.core.call import (
    Caller,
    CannotAsk,
    ForModel,
    ForPerson,
    ForRoots,
    Level,
    current_caller,
)
from onetool.core.context import current_call
from onetool.core.schema import CompiledSchema


async def ask_person(message: str, fields: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
    """Ask the person at the other end to fill in a form; what they filled in.

    Args:
        message: What is asked, and why.
        fields: A JSON schema of type object, or only its `properties`: {"name": {"type": "string"}}. All of these
            are required, unless they have a default.
        key: What the question is called, where a tool asks several times; two questions must not share one.

    Raises:
        Declined: They said no, or closed the form.
        CannotAsk: Whoever called has no way to ask a person.
    """
    schema = dict(fields) if _is_schema(fields) else _form(fields)
    CompiledSchema(schema, closed=False)  # a form that nobody could fill in is this tool's failure, told at once
    return await _caller("elicitation", "a person").ask(
        ForPerson(key=key or _key(message), message=_clean(message), schema=_clean(schema))
    )


async def ask_model(
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    max_tokens: int = 1000,
    system: str | None = None,
    key: str | None = None,
) -> str:
    """Ask the model behind the client, at the client's expense; its text.

    Args:
        prompt: A text, or messages: [{"role": "user", "content": "…"}, …].
        max_tokens: How long the answer may be.
        system: How the model should behave.
        key: What the question is called, where a tool asks several times; two questions must not share one.
    """
    given = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    messages = [{"role": one["role"], "content": _block(one["content"])} for one in given]
    question = ForModel(
        key=key or _key(prompt), messages=tuple(_clean(messages)), max_tokens=max_tokens, system=_clean(system)
    )
    return await _caller("sampling", "a model").ask(question)


async def client_roots(*, key: str | None = None) -> list[dict[str, Any]]:
    """The folders and files that the client works on: [{"uri": "file:///…", "name": …}, …]."""
    return await _caller("roots", "for its folders").ask(ForRoots(key=key or "roots"))


def client_can(what: str) -> bool:
    """Whether the caller has a capability: "elicitation", "sampling", "roots", or an extension by its id."""
    caller = current_caller.get()
    return caller is not None and caller.can(what)


def log_message(data: Any, level: Level = "info", logger: str | None = None) -> None:
    """Tell the caller something while the tool runs, if it listens to this level. Secrets are masked."""
    if level not in get_args(Level):
        raise ValueError(f"level: expected one of {', '.join(get_args(Level))}, got {level!r}")
    caller, context = current_caller.get(), current_call.get()
    if caller is None:
        return
    caller.log(level, _clean(data), logger or (context.spec.pack if context else None))


def _caller(capability: str, whom: str) -> Caller:
    caller = current_caller.get()
    if caller is None or not caller.can(capability):
        raise _cannot(capability, whom, caller)
    return caller


def _cannot(capability: str, whom: str, caller: Caller | None) -> CannotAsk:
    context = current_call.get()
    tool = context.spec.name if context else "this tool"
    where = "from here" if caller is None else "through this client"
    error = CannotAsk(capability, f"{tool} needs to ask {whom}, which can't be done {where}: it takes {capability}")
    if caller is not None:
        caller.lacks(error)
    return error


def _clean(value: Any) -> Any:
    """The value with the app's secrets masked, since questions are sent to the client."""
    context = current_call.get()
    return value if context is None or context.environment is None else context.environment.redact(value)


def _is_schema(fields: Mapping[str, Any]) -> bool:
    return fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping)


def _form(fields: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(fields)}
    required = [name for name, field in fields.items() if "default" not in field]
    return {**schema, "required": required} if required else schema


def _block(content: Any) -> Any:
    return {"type": "text", "text": content} if isinstance(content, str) else content


def _key(about: Any) -> str:
    """The same for the same question, whichever process asks it."""
    from hashlib import blake2b

    return f"q{blake2b(repr(about).encode(), digest_size=6).hexdigest()}"
