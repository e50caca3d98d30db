"""Which names code speaks of, so that what stands behind them can be there when it runs."""

import ast

from onetool.script.reading import ScriptError, parse, read


def used_in(code: str) -> set[str] | None:
    """The names that code uses and does not make itself, and those in its texts; None where it can't be told."""
    try:
        tree = parse(read(code))
    except ScriptError:
        return None
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    said = {text.partition(".")[0] for text in (*texts, *imported, *modules)}
    return said | {node.id for node in names if node.id not in made}
