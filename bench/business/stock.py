"""What lies in the store."""

from onetool.sdk import tool


@tool(read_only=True)
def items(query: str = "", below: int | None = None) -> list[dict]:
    """List items, by a part of their name or fewer than a number in stock.

    Returns:
        A list of {sku, name, stock: int, reserved: int, price: float, supplier}.
    """
    return [{"sku": "T1", "name": "Green tea", "stock": 4, "reserved": 1, "price": 4.5, "supplier": "p1"}]


@tool
def reserve(sku: str, count: int, customer: str) -> dict:
    """Reserve items for a customer. A reservation ends after 48 hours; more than what is free is refused.

    Returns:
        {id, until}
    """
    return {"id": "r1", "until": "2026-11-21T10:00:00Z"}


@tool
def order(sku: str, count: int) -> dict:
    """Order items from their supplier.

    Orders above 1,000 EUR wait for a manager. The supplier takes whole boxes: the count is rounded up to them.

    Returns:
        {id, count: int, price: float, arrives, state}
    """
    return {"id": "o1", "count": count, "price": 45.0, "arrives": "2026-11-25", "state": "ordered"}
