"""Two hundred calls, runs and actions that are always the same, and the figures that follow from them."""

from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.core.principal import LOCAL, Principal
from onetool.core.spec import ToolSpec
from onetool.core.trace import RequestTrace

KEY = bytes(range(32))  # of the hashes
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
DAY = 86_400
CALLERS = (
    LOCAL,
    Principal(name="ci", owner="ci"),
    Principal(name="ann", owner="https://id|7", role="edit"),
    Principal(name="http.token", owner="0123456789abcdef", shares_local_state=True),
)
CLIENTS = ("", "claude", "cursor")
TOOLS = (("web.get", "local"), ("git.log", "proxy:git"), ("notes.add", "local"), ("shop.order", "bundle:shop"))
ERRORS = (
    ToolError(code="invalid_args", message="m"),
    ToolError(code="execution_error", message="m", reason="timeout"),
    ToolError(code="execution_error", message="m", reason="a-word-of-an-author"),
    ToolError(code="tool_not_found", message="m", reason="denied"),
)


def feed():
    """Yield (time, method, arguments) of what happens, oldest first; methods are those of the recorders in `into`."""
    random = Random(69)
    for number in range(120):
        at = NOW - 100 * DAY + number * (99.9 * DAY / 120) + random.random()
        principal, client = CALLERS[number % 4], CLIENTS[number % 3]
        trace = None
        if number % 5:
            ids = (f"{number:024x}", f"{number:032x}", f"{number:016x}")
            trace = RequestTrace(f"req-{number}" if number % 2 else ids[0], *ids)
        if number % 10 == 0:
            yield at, "menu", (client, "mcp", 9_000 + number, 1_000 + number, principal.lasting_owner)
        if number % 4 == 0:
            yield at, "wait", (client, random.random() * 20, principal.lasting_owner)
        if number % 6 == 0:
            run = f"run-{number}"
            for part in range(number % 5):
                yield at + part / 100, "call", (call(random, number * 10 + part, principal, client, trace, run),)
            error = ERRORS[1] if number % 18 == 0 else None
            yield (
                at + 0.2,
                "run",
                (
                    RunEvent(
                        id=run,
                        source="mcp",
                        client=client,
                        duration_ms=random.random() * 100,
                        code_bytes=80 + number,
                        code=f"code {number}",
                        calls=number % 5,
                        made="web.get ok" if error else "",
                        error=error,
                        principal=principal,
                        address="192.0.2.1",
                        trace=trace,
                    ),
                ),
            )
            if number % 12 == 0:
                yield at + 0.3, "reply", (run, 40 + number)
        else:
            yield at, "call", (call(random, number * 10, principal, client, trace, None),)
        if number % 15 == 0:
            more = {"principal": principal, "address": "192.0.2.2", "status": 201 if number % 2 else 403, "via": "http"}
            outcome = "ok" if number % 2 else "role_needed"
            yield (
                at + 0.4,
                "entry",
                ("change", f"PUT /tools/bundles/{number}", {**more, "ms": 3.25, "outcome": outcome}),
            )


def call(random: Random, number: int, principal: Principal, client: str, trace: Any, run: str | None) -> CallEvent:
    name, source = TOOLS[number % 4]
    spec = ToolSpec(name=name, description="d", source=source)
    error = ERRORS[number % 4] if random.random() < 0.3 else None
    via = ("mcp", "rest", "cli", "draft")[random.randrange(100) % 4 if random.random() < 0.5 else 0]
    if random.random() < 0.05:
        name, spec, error = f"unknown.{number}", None, ToolError(code="tool_not_found", message="m")
    return CallEvent.of(
        call=ToolCall(f"c-{number}" if number % 7 else f"an odd id {number}", name, {"n": number, "x": "é" * 9}, via),
        spec=spec,
        error=error,
        value="v" * random.randrange(40_000),
        duration_ms=round(random.expovariate(0.02), 3),
        client=client,
        principal=principal,
        address="192.0.2.7" if principal is not LOCAL else "",
        trace=trace,
        run=run,
    )


def figures(stats: Any, audit: Any, metrics: Any, filters: Any) -> dict[str, Any]:
    """Return what people see of the feed. `filters` has the classes AuditFilter and StatsFilter."""
    import hashlib

    import msgspec

    names = [name for name, _ in TOOLS]
    found: dict[str, Any] = {"facts": {name: stats.facts(name) for name in names} | {"all": stats.facts()}}
    wanted = [
        ("all", None, None),
        ("all", "web.get", None),
        ("all", None, "ci"),
        ("month", None, ""),
        ("week", None, None),
    ]
    found["summary"] = [stats.summary(*one) for one in (*wanted, ("day", "git.log", "https://id|7"))]
    found["report"] = [hashlib.sha256(filters.report(summary).encode()).hexdigest() for summary in found["summary"]]
    found["overview"] = [
        stats.overview(filters.StatsFilter(**one))
        for one in (
            {},
            {"days": 1},
            {"days": 90, "tool": "web.get"},
            {"days": 90, "source": "mcp"},
            {"client": "claude"},
            {"days": 90, "caller": "ci"},
            {"days": 90, "allowed": ["web.get", "git.log"]},
        )
    ]
    found["usage"] = [stats.usage(["web.get", "notes.add"], 90), stats.usage(["git.log"], 1, "ci")]
    whole = audit(filters.AuditFilter())
    args = whole[5].args
    found["audit"] = whole
    found["filtered"] = [
        [record.time for record in audit(filters.AuditFilter(**one))]
        for one in (
            {"who": "ci"},
            {"who": ""},
            {"who": "https://id|7"},
            {"who": "0123456789abcdef"},
            {"kind": "call"},
            {"kind": "change"},
            {"kind": "refusal"},
            {"tool": "web.*"},
            {"tool": "run"},
            {"tool": "*[gr]et"},
            {"outcome": "error"},
            {"outcome": "ok"},
            {"outcome": "timeout"},
            {"outcome": "403"},
            {"args": args},
            {"outcome": "a-word-of-an-author"},
            {"request": "req-7"},
            {"request": f"{8:032x}"},
            {"since": NOW - 30 * DAY, "until": NOW - 9 * DAY},
        )
    ]
    found["metrics"] = metrics
    return msgspec.to_builtins(found)


def namespace(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**more)
