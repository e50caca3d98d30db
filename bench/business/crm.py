"""Customers and what was said with them."""

from onetool.sdk import tool


@tool(read_only=True)
def customers(query: str = "", country: str = "") -> list[dict]:
    """Find customers by a part of their name or mail address, at most 50.

    Args:
        country: Two letters, such as DE.

    Returns:
        A list of {id, name, email, country, owner, since}.
    """
    return [{"id": "c1", "name": "Tea & Co", "email": "a@example.com", "country": "DE", "owner": "s1", "since": "2020"}]


@tool(read_only=True)
def customer(id: str) -> dict:
    """Get everything about a customer.

    Returns:
        {id, name, email, country, owner, since, notes, tags}
    """
    return {"id": id, "name": "Tea & Co", "notes": []}


@tool
def add_note(customer: str, text: str) -> dict:
    """Add a note to a customer. Notes can't be changed or removed, and the customer can ask to read them.

    Returns:
        {id, at}
    """
    return {"id": "n1", "at": "2026-11-19T10:00:00Z"}


@tool(idempotent=True)
def assign(customer: str, owner: str) -> dict:
    """Give a customer to another member of the staff.

    The old owner is told by mail. Refused while the customer has an open complaint.

    Returns:
        {id, owner}
    """
    return {"id": customer, "owner": owner}
