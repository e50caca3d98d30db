"""What can go wrong between us and a server, as failures that say what happened and whether another try may help."""

from onetool.core.errors import ToolFailure


class WireFailure(ToolFailure):
    """Nothing came of one try. `again`: whether another one may do better."""

    again = True


class Unreachable(WireFailure):
    """No connection, or one that broke off."""

    def __init__(self, message: str, again: bool = True) -> None:
        super().__init__(message, reason="source_unavailable")
        self.again = again


class Stale(Unreachable):
    """A connection was closed before a byte of an answer came, for the server was tired of it.

    `sent`: whether the request may have reached it nevertheless.
    """

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TooLate(WireFailure):
    """`what` did not happen in the seconds that there were for it."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} within {seconds:.3g} s", reason="timeout")


class NotConnected(TooLate):
    """There was not even a connection in that time: nothing has been sent."""


class TooLarge(WireFailure):
    again = False

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, reason="too_large", hints=(f"the tool's {key} can be raised",))


class Garbled(WireFailure):
    """What came is not HTTP, or is more of it than anybody needs."""

    again = False

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="source_unavailable")


def retold(failure: ToolFailure, message: str, *hints: str) -> ToolFailure:
    """The same failure in more words. The hints are for one that has none."""
    hints = failure.hints or hints
    if not isinstance(failure, WireFailure):
        return ToolFailure(message, failure.reason, hints)
    other = WireFailure(message, failure.reason, hints)
    other.again = failure.again
    return other
