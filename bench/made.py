"""Tools made for measuring: the same functions for us, as packs, and for the peers."""

from pathlib import Path

TOOLS = 20  # of a pack
FUNCTION = '''
def tool_{number}(query: str, limit: int = 5, tags: list[str] | None = None) -> dict[str, int]:
    """Look something up.

    Args:
        query: What to look for.
        limit: How many at the most.
        tags: Only those with these tags.
    """
    return {{query: limit}}
'''
ADD = '''
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


def pack_text(tools: int = TOOLS) -> str:
    """The source of a pack."""
    return "".join(FUNCTION.format(number=number) for number in range(tools))


def write_packs(folder: Path, tools: int) -> None:
    """So many tools, in packs of twenty."""
    for pack in range(-(-tools // TOOLS)):
        (folder / f"pack_{pack}.py").write_text(pack_text(min(TOOLS, tools - pack * TOOLS)))
