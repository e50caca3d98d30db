"""A tool's question as the protocol asks it, and the answer as the tool wants it."""

from collections.abc import Mapping
from typing import Any

from onetool.core.caller import Declined, ForModel, ForPerson, Question
from onetool.core.errors import ToolFailure


class BadAnswer(Exception):  # noqa: N818 - the client may try again
    """An answer that is none: not of the form that the protocol or the question wants."""


def asked(question: Question) -> dict[str, Any]:
    """The request to the client: its method and params."""
    if isinstance(question, ForPerson):
        params = {"message": question.message, "requestedSchema": question.schema}
        return {"method": "elicitation/create", "params": params}
    if isinstance(question, ForModel):
        params = {"messages": list(question.messages), "maxTokens": question.max_tokens}
        if question.system is not None:
            params["systemPrompt"] = question.system
        return {"method": "sampling/createMessage", "params": params}
    return {"method": "roots/list", "params": {}}


def answered(question: Question, result: Any) -> Any:
    """What the tool gets. Raises BadAnswer, or Declined."""
    if not isinstance(result, Mapping):
        raise BadAnswer("expected an object")
    if isinstance(question, ForPerson):
        return _filled_in(question, result)
    if isinstance(question, ForModel):
        return _said(result.get("content"))
    roots = result.get("roots")
    if not isinstance(roots, list) or not all(isinstance(root, dict) and "uri" in root for root in roots):
        raise BadAnswer("expected roots: a list of objects with a uri")
    return roots


def _filled_in(question: ForPerson, result: Mapping[str, Any]) -> Any:
    action, content = result.get("action"), result.get("content")
    if action in ("decline", "cancel"):
        raise Declined(action)
    if action != "accept":
        raise BadAnswer("expected action: accept, decline or cancel")
    if not isinstance(content, dict):
        raise BadAnswer("expected content: an object")
    from onetool.core.schema import CompiledSchema  # the validator is for those who are answered

    if problems := CompiledSchema(question.schema, closed=False).check(content):
        raise BadAnswer("; ".join(map(str, problems)))
    return content


def _said(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise BadAnswer("expected content: what the model said")
    texts = [block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    if not texts:
        raise ToolFailure(f"the model answered with {blocks[0].get('type')} where a text was wanted")
    return "\n".join(texts)
