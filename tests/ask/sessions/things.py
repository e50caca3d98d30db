"""What several tests of sessions look for."""

from onetool.ask.messages import Result


def paired(messages):
    """Whether each call's result follows it, and nothing else is a result."""
    messages = list(messages)
    while messages:
        first = messages.pop(0)
        for call in getattr(first, "calls", ()):
            following = messages.pop(0)
            if not isinstance(following, Result) or following.call != call.id:
                return False
        if isinstance(first, Result):
            return False
    return True
