"""The process that measures one contender: `python -m bench.contender NAME`.

Each contender is a process that is told which measure to take, so that all of them take turns: a machine that slows
down slows all of them down.
"""

import asyncio
import json
import os
import sys
from time import perf_counter

from bench.workload import FEW, LARGE, MANY, SIZES, Codes, Contender, Run, megabytes

AT_MOST = 50  # runs of one measure in one turn …
SECONDS = 0.5  # … and no new one after that time


async def serve(contender: Contender) -> None:
    """Takes the measures that stdin names, and answers on stdout: a list of seconds, or of megabytes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    opened: dict[int, Run] = {}
    for line in sys.stdin:
        wanted = json.loads(line)
        size = wanted.get("size", SIZES[0])
        if size not in opened:
            opened[size] = await contender.open(size)
            await _check(contender, opened[size])
        if wanted["what"] == "exchange":  # which only ours has
            answer = exchanges() if (exchanges := getattr(contender, "exchanges", None)) else []
        else:
            answer = await _measure(contender.codes, opened[size], **wanted)
        print(json.dumps(answer), file=answers, flush=True)


async def _check(contender: Contender, run: Run) -> None:
    """That the codes do what they are to do; this also warms up."""
    codes = contender.codes
    expected = {codes.sum: 2, codes.calls.format(n=3): 2, codes.large_inside: LARGE, codes.large_out: "x" * LARGE}
    for code, value in expected.items():
        got = contender.value(await run(code))
        assert got == value, f"{code!r} gave {str(got)[:200]}"
    if codes.gathered:
        got = contender.value(await run(codes.gathered))
        assert len(got) == 10, f"{codes.gathered!r} gave {str(got)[:200]}"


async def _measure(codes: Codes, run: Run, what: str, size: int = 0) -> list[float]:
    if what == "memory":
        return await _memory(run, codes.calls.format(n=1))
    code = codes.calls.format(n=11) if what == "call" else getattr(codes, what)
    times: list[float] = []
    until = perf_counter() + SECONDS
    while code and len(times) < AT_MOST and (not times or perf_counter() < until):
        taken = await _seconds(run, code)
        # What ten more calls add, by ten. One run right after the other: a difference of medians would be mostly noise.
        times.append((taken - await _seconds(run, codes.calls.format(n=1))) / 10 if what == "call" else taken)
    return times


async def _seconds(run: Run, code: str) -> float:
    started = perf_counter()
    await run(code)
    return perf_counter() - started


async def _memory(run: Run, code: str) -> list[float]:
    """Megabytes after few runs and after many, of this process and of those that it has started."""
    sizes: list[float] = []
    for number in range(1, MANY + 1):
        await run(code)
        if number in (FEW, MANY):
            sizes.append(megabytes(os.getpid()))
    return sizes


def _contender(name: str) -> Contender:
    """Imports only the one that is wanted: ours and the peers live in different environments."""
    if name == "onetool":
        from bench.ours import OneTool

        return OneTool()
    from bench.peers import PEERS

    return PEERS[name]()


if __name__ == "__main__":
    asyncio.run(serve(_contender(sys.argv[1])))
