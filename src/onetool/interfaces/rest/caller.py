"""The client of REST as its call sees it: stored results are its own, and there is no way to ask it anything."""

from typing import Any

from onetool.core.caller import CannotAsk, Level, Question, current_caller


class RestCaller:
    """`owner` is the principal: the same that the same token has over MCP."""

    __slots__ = ("owner",)

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def can(self, what: str) -> bool:
        return False

    def lacks(self, error: CannotAsk) -> None:
        """The tool's own error says it."""

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        """Nobody listens."""

    async def ask(self, question: Question) -> Any:
        raise CannotAsk("elicitation", "a client of the REST API can't be asked")


def set_caller(principal: str) -> None:
    """For the rest of this request, which has its task for itself."""
    if principal:
        current_caller.set(RestCaller(principal))
