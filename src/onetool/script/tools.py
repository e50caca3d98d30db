"""The tools that code can reach, as the sandbox needs them: packs are objects, tools are functions.

An object has no attributes: what is asked of it comes to us by its id, so that a pack's size does not matter.
"""

from threading import Lock
from typing import Any

from onetool.sandbox.encode import Function, HostObject
from onetool.script.names import Names, Pack


class Recent:
    """A few things by their text. The same few scripts are run again and again: snippets, polls, retries."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._held: dict[str, Any] = {}

    def get(self, text: str) -> Any:
        return self._held.get(text)

    def put(self, text: str, value: Any) -> None:
        if len(self._held) >= self._most:
            self._held.pop(next(iter(self._held)), None)  # the oldest; another thread may have been faster
        self._held[text] = value


class Tools:
    """Made once per catalogue, and shared by its runs."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._lock = Lock()
        self.prepared: Recent = Recent()  # code that was read and checked against this catalogue
        self._objects: dict[str, HostObject] = {}
        self._packs: dict[bytes, str] = {}

    def value(self, word: str) -> Any:
        """What a name stands for in the sandbox: a pack, or a function. None when it is neither."""
        if word in self.names.functions:
            return Function(word)
        pack = self.names.pack(word)
        return None if pack is None else self._object(pack)

    def member(self, receiver: bytes, name: str) -> Any:
        """What `pack.name` stands for where it is not called at once."""
        dotted = self.dotted(receiver, name)
        return None if self.names.tool(dotted) is None else Function(dotted)

    def dotted(self, receiver: bytes, name: str) -> str:
        """The name of what was called or asked for, with its pack before it."""
        return f"{self._packs[receiver]}.{name}" if receiver in self._packs else name

    def _object(self, pack: Pack) -> HostObject:
        with self._lock:
            if pack.word not in self._objects:
                # A class of its own, named like the pack: it is what the sandbox says when an attribute is missing.
                made = HostObject(pack.word)
                self._packs[made.id] = pack.word
                self._objects[pack.word] = made
            return self._objects[pack.word]
