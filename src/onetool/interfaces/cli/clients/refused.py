"""Why a client's file stays as it is."""


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The file is left untouched; the message says why, as the end of a sentence about it."""


def taken(name: str) -> Refused:
    return Refused(f"it has another server called {name}: --force replaces that one, --name takes another name")
