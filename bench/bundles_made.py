"""Bundles made for measuring, written straight into a folder as the store would have written them.

Their words are drawn from a vocabulary as real ones are: few of them often, most of them seldom. All is the same every
time.
"""

import json
from collections.abc import Iterator
from itertools import accumulate, product
from pathlib import Path
from random import Random
from typing import Any

PER_BUNDLE = 100
CALC = '''
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
AT = "2026-11-15T16:00:00.000Z"
COMMON = "customer"  # in the description of every third tool
NUMBER = {"type": "integer"}
ADDING = {
    "type": "python",
    "argSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    "pythonImpl": {"func": "calc.add"},
}

_VERBS = ("get", "list", "find", "create", "update", "delete", "send", "check")
_NOUNS = ("invoice", "order", "ticket", "user", "report", "message", "payment", "device", "label", "shipment")
_SYLLABLES = (
    "ba",
    "cor",
    "din",
    "el",
    "fu",
    "gra",
    "hil",
    "jo",
    "ket",
    "lum",
    "mar",
    "nos",
    "pli",
    "qua",
    "ros",
    "tan",
)
_WORDS = ["".join(parts) for parts in product(_SYLLABLES, repeat=3)][:3_000]
_WEIGHTS = list(accumulate(1 / (place + 1) for place in range(len(_WORDS))))


def bundle_id(number: int) -> str:
    return f"019a0000-0000-7000-8000-{number:012x}"


def write_home(home: Path, tools: int, port: int = 0) -> Path:
    """A config with its pack `calc`, and so many tools in bundles beside it. `port`: where http tools may go to."""
    (home / "packs").mkdir(parents=True)
    (home / "packs" / "calc.py").write_text(CALC)
    hosts = [{"host": f"127.0.0.1:{port}", "allowPrivate": True}] if port else []
    config = home / "onetool.yaml"
    config.write_text(json.dumps({"packs": ["packs"], "allowedHosts": hosts}))
    for number, (slug, parts) in enumerate(_bundles(tools)):
        folder = home / "bundles" / f"{slug}-{bundle_id(number)[-12:]}"
        (folder / "tools").mkdir(parents=True)
        _write(
            folder / "bundle.json", {"slug": slug, "displayName": slug.title(), "isEnabled": True}, bundle_id(number)
        )
        for index, tool in parts:
            _write(
                folder / "tools" / f"{tool['slug']}@{tool['version']}.json",
                tool,
                f"019a0000-0001-7000-8000-{index:012x}",
            )
    return config


def http_tool(url: str, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "http",
        "argSchema": {"type": "object", "properties": args, "required": list(args)},
        "httpImpl": {"request": {"urlTemplate": url}},
    }


def named(index: int) -> str:
    """The slug of a tool."""
    return f"{_VERBS[index % len(_VERBS)]}-{_NOUNS[index // len(_VERBS) % len(_NOUNS)]}-{index}"


def _bundles(tools: int) -> Iterator[tuple[str, Iterator[tuple[int, dict[str, Any]]]]]:
    chance = Random(8)
    for start in range(0, tools, PER_BUNDLE):
        indexes = range(start, min(start + PER_BUNDLE, tools))
        yield f"service-{start // PER_BUNDLE}", ((index, _tool(index, chance)) for index in indexes)


def _tool(index: int, chance: Random) -> dict[str, Any]:
    """Nine of ten are HTTP tools."""
    words = chance.choices(_WORDS, cum_weights=_WEIGHTS, k=14)
    if index % 3 == 0:
        words[3] = COMMON
    slug = named(index)
    args = {"id": {"type": "string", "description": "Which one."}, "limit": {"type": "integer", "default": 10}}
    kind = (
        ADDING if index % 10 == 9 else http_tool("https://api.example.com/v1/" + slug + "/${id}?limit=${limit}", args)
    )
    about = {"displayName": slug.replace("-", " ").title(), "description": " ".join(words).capitalize() + "."}
    return {"slug": slug, "version": "1.0", **about, "tags": words[:2], "isEnabled": True, **kind}


def _write(file: Path, thing: dict[str, Any], id: str) -> None:
    kept = {"id": id, "createdAt": AT, "modifiedAt": AT, "schemaVersion": "1"}
    file.write_text(json.dumps({**thing, **kept}, indent=2) + "\n")
