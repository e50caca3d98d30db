"""JSON pointers (RFC 6901): where in a definition something stands."""


def below(pointer: str, name: str | int) -> str:
    """The pointer to a member of what the other one points to."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
