"""The calls in an answer of a server that speaks OpenAI's API, put together from pieces."""

import re
from collections.abc import Iterator
from typing import Any

from onetool.ask.messages import Call, Prompt
from onetool.ask.providers.reading import a_name, a_text, an_object, arguments, as_json
from onetool.ask.providers.room import NAME as LONGEST_NAME
from onetool.ask.providers.room import Room, room_for_arguments, too_much

NAME = "openai"
KEPT_OF_CALLS = ("extra_content", "provider_specific_fields")  # signatures of Gemini's thoughts, say

_ESCAPED = re.compile(r"\\.", re.DOTALL)


class Calls:
    """The calls of one answer. Pieces belong together by index; many servers count wrongly, or not at all."""

    def __init__(self, kept: Room) -> None:
        """`kept` is the room for what only the server understands."""
        self._kept = kept
        self._all: list[_Pieces] = []
        self._last: dict[int | None, _Pieces] = {}  # of each index, and of all (None)
        self._ids: dict[tuple[int | None, str], _Pieces] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def take(self, item: dict[str, Any], is_whole: bool) -> None:
        function = an_object(item.get("function"), "the function of a tool call")
        id, name = a_text(item.get("id"), "the id of a call"), a_name(function.get("name"))
        args = function.get("arguments")
        text = args if isinstance(args, str) else "" if args is None else as_json(args)
        index = item.get("index")
        index = index if isinstance(index, int) else None
        call = None if is_whole else self._goes_on(index, id, name)
        if call is None:
            call = _Pieces()
            self._all.append(call)
        kept = {key: item[key] for key in KEPT_OF_CALLS if item.get(key)}
        if kept:
            self._kept.take(as_json(kept))
        call.take(id, name, text, kept)
        self._last[index] = self._last[None] = call
        self._ids[index, call.id] = self._ids[None, call.id] = call

    def _goes_on(self, index: int | None, id: str, name: str) -> "_Pieces | None":
        """The call that this is a piece of, unless another one begins."""
        last = self._last.get(index)
        if last is None or (not id and not name):
            return last
        if id and last.id:
            return self._ids.get((index, id))
        if not name or not last.name:
            return last
        # Nothing but a name: it is repeated, or the next call begins, which is told by what has come of the last one.
        return None if index is None or name != last.name or last.is_whole else last

    def read(self, prompt: Prompt) -> Iterator[Call]:
        names = prompt.tools.names(NAME)
        for call in self._all:
            args, malformed = call.arguments()
            name = names.from_provider(call.name) or call.name
            yield Call(id=call.id, name=name, args=args, malformed=malformed, kept=call.kept)


class _Pieces:
    """One call, as far as it has come."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.kept: dict[str, Any] = {}
        self._args: list[str] = []
        self._room = room_for_arguments()
        self._balance = Balance()
        self._weighed = 0  # how many pieces are in the balance: most calls never ask

    def take(self, id: str, name: str, args: str, kept: dict[str, Any]) -> None:
        self.id = self.id or id
        if name != self.name and not self._args:  # some repeat it with every piece
            self.name += name
            if len(self.name) > LONGEST_NAME:
                raise too_much(LONGEST_NAME, "the name of a tool")
        if args:
            self._args.append(self._room.take(args))
        self.kept |= kept

    def arguments(self) -> tuple[dict[str, Any], str | None]:
        return arguments("".join(self._args))

    @property
    def is_whole(self) -> bool:
        for piece in self._args[self._weighed :]:
            self._balance.feed(piece)
        self._weighed = len(self._args)
        return self._balance.is_even


class Balance:
    """Whether a text in JSON has come to its end, piece by piece: each is looked at once, and nothing is parsed."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = self._after_backslash = self._begun = False

    def feed(self, piece: str) -> None:
        text = _ESCAPED.sub("", f"\\{piece}" if self._after_backslash else piece)
        self._after_backslash = text.endswith("\\")
        stretches = text.split('"')
        outside = "".join(stretches[1 if self._in_text else 0 :: 2])
        self._depth += outside.count("{") - outside.count("}")
        self._in_text ^= len(stretches) % 2 == 0
        self._begun = self._begun or len(stretches) > 1 or "{" in outside

    @property
    def is_even(self) -> bool:
        """All that was opened is closed, and something was."""
        return self._begun and not self._in_text and self._depth <= 0
