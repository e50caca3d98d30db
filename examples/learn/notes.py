from base64 import b64decode

from onetool.sdk import ToolFailure, image, prompt, resource

NOTES = {"monday": "Buy tea."}
PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)


def dot() -> dict:
    """Draw one red dot."""
    return image(PIXEL)


@prompt
def plan(day: str) -> str:
    """Plan a day."""
    return f"Plan my {day}. These are my notes: {NOTES.get(day, 'none')}"


@resource("notes://{day}", mime_type="text/plain")
def notes(day: str) -> str:
    """The notes of a day."""
    if day not in NOTES:
        raise ToolFailure(f"there are no notes of {day}", reason="not_found")
    return NOTES[day]
