"""Another process at the same index: `python other_process.py FILE PART …`. Says `ready` before it begins."""

import random
import sys
from pathlib import Path

from sources.bundles.index.made import bundle, path_of, put, put_into, tool

from onetool.sources.bundles.index import Index


def churn(index: Index, seed: str, names: str) -> None:
    """Until its input ends: tools come, go, and are switched on and off; none of those that the test watches."""
    rnd = random.Random(seed)
    words = names.split(",")
    while not _told_to_stop():
        with index.changing() as changes:
            for _ in range(rnd.randint(1, 4)):
                number = rnd.randint(10_000, 10_100)
                one = tool(
                    number,
                    display_name=rnd.choice(words),
                    description=rnd.choice(words),
                    is_enabled=rnd.random() < 0.5,
                    modified_at=f"2026-11-15T16:00:{rnd.randint(0, 59):02}.000Z",
                )
                put_into(changes, one) if rnd.random() < 0.7 else changes.drop(path_of(one))


def add(index: Index, first: str, number: str) -> None:
    """So many tools, each in a transaction of its own."""
    for one in range(int(first), int(first) + int(number)):
        put(index, tool(one))


def open_only(index: Index) -> None:
    put(index, bundle())
    print(index.state(), flush=True)


def _told_to_stop() -> bool:
    import select

    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    _, file, part, *rest = sys.argv
    print("ready", flush=True)
    if part != "churn":
        sys.stdin.readline()
    mine = Index(Path(file))
    {"churn": churn, "add": add, "open": open_only}[part](mine, *rest)
    mine.close()
