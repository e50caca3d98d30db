"""Invoices and payments of a small company."""

from onetool.sdk import tool

INVOICES = {"INV-1": {"number": "INV-1", "customer": "c1", "amount": 120.0, "currency": "EUR", "state": "open"}}


@tool(read_only=True)
def invoices(customer: str = "", state: str = "open") -> list[dict]:
    """List invoices, the oldest first.

    Without a customer these are the invoices of all customers, at most 200.

    Args:
        customer: A customer's id, such as "c1".
        state: open, paid or void.

    Returns:
        A list of {number, customer, amount: float, currency, due, state}.
    """
    return [one for one in INVOICES.values() if one["state"] == state and customer in ("", one["customer"])]


@tool
def create_invoice(customer: str, amount: float, currency: str = "EUR") -> dict:
    """Make an invoice. It is due 14 days after the next working day.

    Refused for a customer with two overdue invoices. Amounts have at most two decimals; a negative amount is a credit
    note and needs the number of the invoice in the customer's notes.

    Returns:
        {number, due, amount: float, currency}
    """
    return {"number": f"INV-{len(INVOICES) + 1}", "due": "2026-12-03", "amount": amount, "currency": currency}


@tool
def record_payment(number: str, amount: float) -> dict:
    """Record a payment of an invoice.

    A part is accepted, more than what is open is refused. Payments are booked from 8 to 18 o'clock on working days.

    Returns:
        {number, open: float, state}
    """
    return {"number": number, "open": 0.0, "state": "paid"}


@tool(idempotent=True)
def void(number: str, reason: str) -> dict:
    """Make an invoice void. Only open invoices without payments can be void; the number is not used again.

    Returns:
        {number, state}
    """
    return {"number": number, "state": "void"}
