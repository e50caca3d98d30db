"""Descriptions of the app and its tools: descriptions for models, facts about one tool, and health.

Models read the descriptions of `run`, `search` and `call`, and the server's instructions. The description of `run`
takes at most 500 tokens, however many packs there are: names are listed while they fit. Names may be chosen by third
parties, so only short words of letters and digits are shown, and none of the packs' own text.
"""

import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from onetool._version import __version__
from onetool.app.bundles import AppBundles
from onetool.app.catalog import ToolCatalog
from onetool.app.runtime import Runtime
from onetool.config import Config
from onetool.config.model import Menu, ResultsConfig, RunConfig, Snippet
from onetool.config.trust import Untrusted
from onetool.core.errors import Mistake
from onetool.core.json_data import freeze
from onetool.core.principal import current_principal, stats_caller
from onetool.core.registry import Snapshot, is_shown, shown_packs
from onetool.core.signature import as_identifier, signature
from onetool.script.names import ScriptNames

MAX_TOKENS = 500
FIXED_TOKENS = 354  # of `run` without names, with its title, as JSON with spaces
LINE_TOKENS = 16  # of a line of names, without the names; a test checks both
MAX_NAME = 32

RUN_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}

RUN = """\
Run Python that calls tools. Returns what is printed and the value of a last expression (no assignment).

`pack.tool(key=value)` returns plain data; tools are values and take `**kwargs`. Never guess names or arguments: \
`ot.help('words')` finds, explains and lists packs.

Do the whole job in one run; return what matters. Plain calls work everywhere; `await` is for parallel ones:
```
import asyncio
paths = [f['path'] for f in fs.list_dir(path='.') if '.md' in f['path']]
texts = await asyncio.gather(*[fs.read_file(path=p) for p in paths])
sum(t.count('TODO') for t in texts)
```
- A failed call raises: use try/except.
- `ot.all(pack.list, key=value)` gives all pages' items.
- Every run starts empty. No files, network or packages: use tools.
- Not supported: yield, del, class inheritance, tool calls in map, filter, sorted."""

MARKS = "Marks: [reads] changes nothing, [changes] does, [repeatable] is safe to repeat."

LIMITS = """\
A run has {seconds:g} s and {calls} calls. Up to {bytes} bytes come back whole, more as a handle: \
`ot.result(handle, search='regex')` reads lines, `ot.load(handle)` the value."""

SEARCH = """\
Find tools by what they do, in plain words. Returns the best, a line each: name(arguments) -> result [marks]: what it \
does. `call` calls one, `run` many. Search before you say that something can't be done."""

RUN_FOUND = """\
Run Python for many calls at once: `pack.tool(key=value)`, or `ot.call(name, args)` with the exact name, returns plain \
data. Returns what is printed and the value of a last expression: only what matters. Tools are values and take \
`**kwargs`. Plain calls work everywhere; `await asyncio.gather(…)` is for parallel ones. No files, network, packages, \
yield, del or class inheritance."""

CALL = """\
Call a tool by its exact `name`, with `args` by their names. A large result comes \
back as a handle: call 'ot.result' with {'handle': …, 'offset': …, 'search': 'regex'} to read its lines."""

PACKS = "Packs:"
FUNCTIONS = "Functions without a pack:"
SNIPPETS = "Snippets, called alone as `$name key=value`:"

# What certainly takes few tokens: up to three digits are one token, and so are any two of these letters, or a space or
# underscore and the letter after it. (In some vocabularies, other letters and the pairs g-k, w-v, y-f and y-v take
# two.)
_DIGITS = re.compile("[0-9]{1,3}")
_LETTERS = re.compile("[ _]?(?:[a-fhik-pr-v]|g(?!k)|w(?!v)|y(?![fv]))+")


def limits_line(run: RunConfig, results: ResultsConfig) -> str:
    return LIMITS.format(seconds=run.timeout_s, calls=run.max_calls, bytes=results.inline_bytes)


def run_description(
    packs: Iterable[str],
    functions: Iterable[str] = (),
    snippets: Iterable[str] = (),
    text: str | None = None,
    limits: str = limits_line(RunConfig(), ResultsConfig()),
) -> str:
    """Return the description of `run`. Names are as code writes them; `functions` are tools without a pack, and
    aliases.

    `text` is the user's own text that replaces ours; its length has been checked.
    """
    room = MAX_TOKENS - FIXED_TOKENS
    bare, used = _name_line(FUNCTIONS, functions, room // 4)
    ready, also_used = _name_line(SNIPPETS, snippets, room // 4, mark="$")
    named, _ = _name_line(PACKS, packs, room - used - also_used, ": ot.packs()")
    intro = text or f"{RUN}\n- {limits}\n\n{MARKS}"
    return "\n\n".join(filter(None, (intro.strip(), "\n".join(filter(None, (named, bare, ready))))))


def search_description(packs: Iterable[str]) -> str:
    """Return the description of `search`, in the menu of that name. `packs` are the first parts of tool names."""
    named, _ = _name_line(PACKS, packs, MAX_TOKENS - FIXED_TOKENS)
    return "\n\n".join(filter(None, (SEARCH, named)))


def call_description() -> str:
    """Return the description of `call`, in the menu `search`."""
    return CALL


def server_instructions(menu: Menu, tools: int, text: str | None = None) -> str:
    """Return the server's instructions: when to use it. They don't repeat the descriptions.

    `text` is the user's own text that replaces ours.
    """
    if text is not None:
        return text.strip()
    there = f"OneTool gives you {tools} tool{'' if tools == 1 else 's'}"
    if menu == "direct":
        return f"{there}, each named after its pack."
    through = "`run`" if menu == "run" else "`search`, `call` and `run`"
    return f"{there} through {through}. Turn to it when a task needs data or actions that your other tools don't offer."


def untrusted_note(untrusted: Untrusted) -> str:
    """Return a note that tools are missing, and who can enable them. It quotes nothing from the untrusted folder."""
    note = "Tools from this project's folder are disabled, because its current content is not trusted"
    return f"{note}: tell the user to run `{untrusted.command}` there."


def most_tokens(text: str) -> int:
    """Return an upper bound for the tokens of a text, without a vocabulary.

    A byte is at most one token. If two adjacent letters always form one token, no two one-letter tokens are adjacent:
    at worst, three letters make two tokens.
    """
    digits, letters = _DIGITS.findall(text), _LETTERS.findall(text)
    others = len(text.encode(errors="replace")) - sum(map(len, digits)) - sum(map(len, letters))
    return others + len(digits) + sum((2 * len(row) + 1) // 3 for row in letters)


def _name_line(head: str, names: Iterable[str], room: int, see: str = "", mark: str = "") -> tuple[str, int]:
    """Return a line with the names that fit and the number of the others, and the line's size."""
    every = dict.fromkeys(names)
    if not every:
        return "", 0
    line, used, left = head, LINE_TOKENS, len(every)
    for name in every:
        # Only short plain words. Combining marks are left out, because some are invisible.
        if not 0 < len(name) <= MAX_NAME or not all(char in "_-" or char.isalnum() for char in name):
            continue
        word = f" {mark}{name}"
        cost = most_tokens(word)
        if used + cost > room:
            break
        line, used, left = f"{line}{word}", used + cost, left - 1
    return (f"{line} … and {left} more{see}" if left else line), used


# `run` as a model sees it: one tool, with the names that its code can use.


def run_tool(
    catalog: ToolCatalog, config: Config, allowed: Collection[str] | None, in_search: bool = False
) -> dict[str, Any]:
    """Return the listing of `run`. In the menu `search`, the other two tools describe the tools."""
    limits = limits_line(config.run, config.results)
    tool = {"name": "run", "title": "Run code over all tools", "inputSchema": RUN_SCHEMA}
    if in_search:
        return {**tool, "description": config.texts.run or f"{RUN_FOUND} {limits} {MARKS}"}
    snapshot = catalog.current_snapshot()
    names, full = ScriptNames(snapshot, config.aliases), list[str]()
    if allowed is None:  # there may be very many bundles: it is enough to know that they have tools
        shown = {spec.name for spec in snapshot.own() if is_shown(spec)}
        full = shown_packs(snapshot.lazy)
    else:
        shown = {tool.name for tool in catalog.tools(allowed).held}
    packs = names.words_of({*full, *(name.partition(".")[0] for name in shown if "." in name and snapshot.has(name))})
    functions = [word for word, spec in names.functions.items() if spec.name in shown]
    packs += [word for pack in catalog.server_packs(allowed) if (word := as_identifier(pack)) not in packs]
    snippets = snippets_for(snapshot, config, allowed)
    return {**tool, "description": run_description(packs, functions, snippets, config.texts.run, limits)}


def snippets_for(catalogue: Snapshot, config: Config, allowed: Collection[str] | None) -> Mapping[str, Snippet]:
    """Return the snippets of the config; with an allow-list, only those that use allowed tools."""
    if allowed is None or not config.snippets:
        return config.snippets
    from onetool.script.snippets import visible_snippets

    return visible_snippets(config.snippets, ScriptNames(catalogue, config.aliases), allowed)


# Facts about the app: one tool with its schemas, and the health

NO_SERVERS = freeze({"status": "ok", "server_count": 0, "servers": {}})
FACTS = ("calls", "success_rate", "median_ms", "last_called")


def tool_info(
    name: str, allowed: Collection[str] | None, catalog: ToolCatalog, runtime: Runtime, bundles: AppBundles
) -> dict[str, Any] | None:
    """Return a tool's schemas and run-time facts, or None if there is no such tool."""
    snapshot = catalog.current_snapshot()
    spec = catalog.registry.get(catalog.real_name(name))
    if spec is None:
        return None
    return {
        **spec.summary(),
        "outputSchema": spec.output_schema,
        **({"inferredOutput": spec.observed.schema()} if spec.observed else {}),
        "signature": tool_signature(snapshot, spec.name),
        **({"effect": spec.effect} if spec.effect else {}),
        "source": spec.source,
        "definedIn": spec.defined_in or bundles.file_of(spec),
        **({"requires": [need.to_dict() for need in spec.requires]} if spec.requires else {}),
        "allowed": allowed is None or spec.name in allowed,
        "enabled": spec.enabled,
        **(runtime.stats.facts(spec.name, stats_caller()) if runtime.stats else dict.fromkeys(FACTS)),
    }


def tool_signature(snapshot: Snapshot, name: str) -> str | None:
    """Return the signature of a tool, with the name that code uses."""
    spec = snapshot.get(name)
    return None if spec is None else signature(spec, ScriptNames(snapshot).spelling(spec))


def health(
    allowed: Collection[str] | None,
    catalog: ToolCatalog,
    runtime: Runtime,
    findings: Callable[[], Iterable[Mistake]],
) -> dict[str, Any]:
    """Return the state of the registry, servers and services. With an allow-list, only those of allowed tools are
    named.

    Findings name files, hosts and other callers, so they are included only for callers who may edit.
    """
    sees_all = allowed is None and current_principal.get().may("edit")
    found = [str(one) for one in findings()] if sees_all else []
    return {
        "version": __version__,
        "python": platform.python_version(),
        "cwd": os.getcwd(),
        "registry": {
            "status": "degraded" if any(one.severity == "error" for one in catalog.mistakes) else "ok",
            "tool_count": catalog.count(allowed),
        },
        "proxy": NO_SERVERS if catalog.servers is None else catalog.servers.health(allowed),
        **({"trust": str(catalog.untrusted)} if catalog.untrusted else {}),
        **({"findings": runtime.redact(found)} if found else {}),
    }
