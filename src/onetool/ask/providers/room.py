"""How much of one answer is kept. Models say far less than this: who sends more is broken, or means no good."""

from onetool.ask.errors import ModelError

MIB = 1024 * 1024
TEXT = 4 * MIB  # bytes of what is said
THOUGHTS = 2 * MIB  # of thoughts and their signatures, as far as they are kept
ARGUMENTS = 1 * MIB  # of one call
NAME = 1024  # of a tool


class Room:
    """For all pieces of one thing. A piece that no longer fits is a ModelError, which no other try mends."""

    def __init__(self, most: int, what: str) -> None:
        self._left = self._most = most
        self._what = what

    def take(self, piece: str) -> str:
        """The piece itself, which fits."""
        self._left -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise too_much(self._most, self._what)
        return piece


def room_for_text() -> Room:
    return Room(TEXT, "an answer")


def room_for_thoughts() -> Room:
    return Room(THOUGHTS, "thoughts")


def room_for_arguments() -> Room:
    return Room(ARGUMENTS, "the arguments of a call")


def too_much(most: int, what: str) -> ModelError:
    size = f"{most // MIB} MiB" if most >= MIB else f"{most // 1024} KiB"
    return ModelError(f"the model's API sent {what} of more than {size}", "garbled")
