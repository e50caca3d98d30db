"""python -m bench [SUBJECT …]: all subjects, or those that are named.

cold-start   a command from nothing
calls        a lookup and a call, with few tools and with many
packs        loading many packs; a tool that calls another
ot           finding one's way among 100, 2,000 and 20,000 tools
stats        what counting a call costs
run          code, beside FastMCP's code mode and smolagents
mcp          the server over stdio and HTTP, beside FastMCP and the official SDK; takes three to four minutes
servers      other people's servers behind us, beside the SDK's client and FastMCP's proxy; takes about five minutes
bundles      the store and REST with 100 and 10,000 tools, and invoke beside FastMCP; takes about four minutes
page         the page in a real browser with 10,000 tools, and what it adds to a server that nobody visits
ask          `ask` to its first request, beside the official SDKs; tokens of a task with 10, 100 and 527 tools

Only where they are named:
bundles-large    the same with 100,000 tools as well
bundles-profile  where the time of an invoke goes, and that of keeping in step
"""

import sys

from bench import ask, bundles, bundles_profile, calls, cold_start, mcp, ot, packs, page, run, servers, stats

SUBJECTS = {
    "cold-start": cold_start.run,
    "calls": calls.run,
    "packs": packs.run,
    "ot": ot.run,
    "stats": stats.run,
    "run": run.run,
    "mcp": mcp.run,
    "servers": servers.run,
    "bundles": bundles.run,
    "page": page.run,
    "ask": ask.run,
}
BY_NAME = {"bundles-large": bundles.run_large, "bundles-profile": bundles_profile.run}


def main() -> None:
    wanted = sys.argv[1:] or list(SUBJECTS)
    there = {**SUBJECTS, **BY_NAME}
    unknown = [name for name in wanted if name not in there]
    if unknown:
        sys.exit(f"no subject {', '.join(unknown)}; there are {', '.join(there)}")
    try:
        for name in wanted:
            there[name]()
    except KeyboardInterrupt:
        sys.exit(130)  # what a subject has started, it has ended


main()
