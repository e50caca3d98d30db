"""What a handler raised, in words: one line for the caller, and the place in the author's file."""

import os
from typing import cast

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def words_for(error: BaseException) -> str:
    """An exception as one line. Its own text may be missing, huge or broken."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = ""
    if isinstance(error, SystemExit):
        return f"the tool tried to end the process (SystemExit: {text})"
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        inner = cast(tuple[BaseException, ...], error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        text += ": " + "; ".join(map(words_for, inner[:5]))
    return f"{name}: {text}" if text else name


def place_of(error: BaseException) -> tuple[str, ...]:
    """Where it was raised, for the author: the last line on the way that is not ours."""
    place, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(OURS):
            place = f"raised at {os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (place,) if place else ()
