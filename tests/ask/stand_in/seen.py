"""One request that the stand-in got."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seen:
    """`headers` have names in lower case. `number` counts the requests, for ids that never come twice."""

    provider: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any  # JSON, read already; None where there is none
    number: int
    stream: bool = False
    model: str = ""
    tools: list[str] = field(default_factory=list)  # the names offered
    messages: list[Any] = field(default_factory=list)  # as the API has them

    def call_id(self, prefix: str, index: int) -> str:
        return f"{prefix}{self.number:04}{index:02}"
