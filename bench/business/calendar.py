"""Meetings of the staff."""

from onetool.sdk import tool


@tool(read_only=True)
def free(people: list[str], day: str, minutes: int = 30) -> list[dict]:
    """Find times at which all these people are free.

    Only working hours count: 9 to 17 o'clock, Monday to Friday, in the office's time zone.

    Args:
        people: Staff ids.
        day: Such as 2026-11-19.

    Returns:
        A list of {start, end}.
    """
    return [{"start": f"{day}T09:00", "end": f"{day}T09:30"}]


@tool
def book(people: list[str], start: str, minutes: int, title: str, room: str = "") -> dict:
    """Book a meeting and invite everybody.

    Refused where somebody is busy, outside of working hours, and less than an hour from now. Without a room it is
    a call.

    Returns:
        {id, start, end, room}
    """
    return {"id": "m1", "start": start, "end": start, "room": room}


@tool
def cancel(id: str, message: str = "") -> dict:
    """Cancel a meeting and tell everybody. Only its organizer can; a meeting that has begun stays.

    Returns:
        {id, told: int}
    """
    return {"id": id, "told": 2}
