"""One question on its way through this door: what is asked, and how its end is told."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Answer
from onetool.core.allowed import both
from onetool.core.nearest import or_rather
from onetool.interfaces.rest.ask.body import Question
from onetool.interfaces.rest.ask.refusal import Failed

if TYPE_CHECKING:
    from onetool.app import App


class Turn:
    """`log` is the request's."""

    def __init__(self, app: "App", question: Question, allowed: Collection[str] | None, log: dict[str, Any]) -> None:
        self._app = app
        self._question = question
        self._log = log
        self.asking = app.ask(question.prompt, allowed=both(allowed, question.tool_allow), **question.options())
        self.clean = app.redact

    def failed(self, error: AskError) -> Failed:
        self._log["error"] = error.reason
        return Failed(error, self.asking.answer, self._question)

    def finished(self, answer: Answer) -> Answer:
        """With a word on names in the allow-list that are nobody's; servers have listed their tools by now."""
        registry = self._app.registry
        unknown = [
            f"toolAllow names no tool: {name[:100]}{or_rather(name, registry.names())}"
            for name in registry.unmatched(self._question.tool_allow or ())
        ]
        return msgspec.structs.replace(answer, hints=(*answer.hints, *unknown)) if unknown else answer
