"""python -m bench [SUBJECT …]: all subjects, or those that are named.

cold-start   a command from nothing
calls        a lookup and a call, with few tools and with many
packs        loading many packs; a tool that calls another
ot           finding one's way among 100, 2,000 and 20,000 tools
stats        what counting a call costs
run          code, beside FastMCP's code mode and smolagents
mcp          the server over stdio and HTTP, beside FastMCP and the official SDK; takes three to four minutes
servers      other people's servers behind us, beside the SDK's client and FastMCP's proxy; takes about five minutes
"""

import sys

from bench import calls, cold_start, mcp, ot, packs, run, servers, stats

SUBJECTS = {
    "cold-start": cold_start.run,
    "calls": calls.run,
    "packs": packs.run,
    "ot": ot.run,
    "stats": stats.run,
    "run": run.run,
    "mcp": mcp.run,
    "servers": servers.run,
}


def main() -> None:
    wanted = sys.argv[1:] or list(SUBJECTS)
    unknown = [name for name in wanted if name not in SUBJECTS]
    if unknown:
        sys.exit(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    try:
        for name in wanted:
            SUBJECTS[name]()
    except KeyboardInterrupt:
        sys.exit(130)  # what a subject has started, it has ended


main()
