from onetool.sdk import batch_execute, call_tool, get_pack, report_progress


def mornings(cities: list[str]) -> str:
    """Tell the weather of many cities, asked for side by side."""
    return batch_execute([(city, city.title()) for city in cities], _morning, max_workers=4)


def _morning(city: str) -> str:
    return str(call_tool("weather.today", city=city))


async def lucky_city(cities: list[str]) -> str:
    """Pick a city by rolling dice; in async code a call is awaited."""
    report_progress(0, 1, "rolling")
    dice = get_pack("dice")
    if dice is None:
        return cities[0]
    (number,) = await dice.roll(sides=len(cities))
    return cities[number - 1]
