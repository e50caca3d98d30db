"""One question on its way through this door: what is asked, and how its end is told."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Answer
from onetool.core.nearest import or_rather
from onetool.interfaces.rest.ask.body import Question
from onetool.interfaces.rest.ask.refusal import Failed

if TYPE_CHECKING:
    from onetool.app import App

MOST_HINTS = 10  # each looks for the names that could be meant


class Turn:
    """`log` is the request's."""

    def __init__(self, app: "App", question: Question, allowed: Collection[str] | None, log: dict[str, Any]) -> None:
        self._app = app
        self._question = question
        self._log = log
        self.asking = app.ask(question.prompt, allowed=question.tool_allow, within=allowed, **question.options())
        self.clean = app.redact

    def failed(self, error: AskError) -> Failed:
        self._log["error"] = error.reason
        return Failed(error, self.asking.answer, self._question)

    def finished(self, answer: Answer) -> Answer:
        """With a word on names in the allow-list that are nobody's; servers have listed their tools by now."""
        unknown = list(self._app.registry.unmatched(self._question.tool_allow or ()))
        if not unknown:
            return answer
        known = self._app.registry.names()
        told = [f"toolAllow names no tool: {name[:100]}{or_rather(name, known)}" for name in unknown[:MOST_HINTS]]
        if further := len(unknown) - len(told):
            told.append(f"toolAllow names {further:,} more that are no tools")
        return msgspec.structs.replace(answer, hints=(*answer.hints, *told))
