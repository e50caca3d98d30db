from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Literal

from msgspec import Meta


class Comfort(Enum):
    BASIC = "basic"
    FINE = "fine"


@dataclass
class Stop:
    city: str
    nights: int = 1


async def plan(
    start: date,
    stops: list[Stop],
    comfort: Comfort = Comfort.BASIC,
    currency: Literal["EUR", "USD"] = "EUR",
    budget: Annotated[float, Meta(gt=0), "What it may cost in all."] = 1000.0,
) -> dict[str, str]:
    """Plan a trip: what arrives here is a real date, real Stops and a real Comfort."""
    nights = sum(stop.nights for stop in stops)
    return {"from": start.isoformat(), "nights": str(nights), "class": comfort.name, "budget": f"{budget:g} {currency}"}
