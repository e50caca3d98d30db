"""A small shop, for trying `run`: things to find, and prices that take a moment to look up."""

import asyncio

THINGS = {
    "tea": {"kind": "drink", "price": 4.5},
    "coffee": {"kind": "drink", "price": 6.0},
    "bread": {"kind": "food", "price": 3.2},
    "cheese": {"kind": "food", "price": 8.9},
}


def find(kind: str | None = None) -> list[str]:
    """Names of the things on sale.

    Args:
        kind: Only these: drink or food.
    """
    return [name for name, thing in THINGS.items() if kind in (None, thing["kind"])]


async def price(name: str, count: int = 1) -> float:
    """What so many of a thing cost.

    Args:
        name: The thing.
        count: How many.
    """
    await asyncio.sleep(0.05)  # somewhere, far away, is the price list
    if name not in THINGS:
        raise LookupError(f"nothing called {name!r} is on sale; there are: {', '.join(THINGS)}")
    return THINGS[name]["price"] * count
