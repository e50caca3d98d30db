import random

def roll(sides: int = 6, times: int = 1) -> list[int]:
    """Roll dice and give the numbers.

    Args:
        sides: How many sides each die has.
        times: How many dice to roll.
    """
    return [random.randint(1, sides) for _ in range(times)]
