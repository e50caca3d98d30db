"""The staff and their holidays."""

from onetool.sdk import tool


@tool(read_only=True)
def staff(team: str = "") -> list[dict]:
    """List the staff.

    Returns:
        A list of {id, name, email, team, manager}.
    """
    return [{"id": "s1", "name": "Ann", "email": "ann@example.com", "team": "sales", "manager": "s2"}]


@tool(read_only=True)
def holidays(person: str, year: int) -> dict:
    """Get the holidays of a person. Days of other people need the role of their manager.

    Returns:
        {left: int, taken: int, requests}
    """
    return {"left": 12, "taken": 18, "requests": []}


@tool
def request_holiday(person: str, first: str, last: str) -> dict:
    """Ask for a holiday.

    Refused in the last week of a quarter for the team finance, and where fewer than two people of the team remain. The
    manager answers within three working days.

    Returns:
        {id, days: int, state}
    """
    return {"id": "h1", "days": 5, "state": "requested"}
