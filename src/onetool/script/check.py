"""Checked before the first effect: every call of a tool in the code, against the catalogue.

Only what is literally wrong is told: a tool that is not there, an argument that it does not take or needs, a literal
that its schema rules out. Everything else is let go, and validated when the call is made.
"""

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import groupby, islice
from typing import NamedTuple

from onetool.core.call import Problem
from onetool.core.errors import SchemaError
from onetool.core.failure import cut
from onetool.core.nearest import or_rather
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.script import ways_around
from onetool.script.arguments import UNKNOWN, Arguments, literal, problems_with
from onetool.script.names import BUILTINS, CALL, Names
from onetool.script.scan import Scan

MOST_TOLD = 5
ASYNCIO = ("gather", "run", "sleep")  # what there is
SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)
PERHAPS = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST_FOUND = 100  # each may ask for the nearest name, which takes its time
LONGEST, LONGEST_MESSAGE = 460, 290  # characters: of all that is told, and of what is wrong


class Finding(NamedTuple):
    """One thing that is wrong, the line it is on, and the tool that it is about, whose signature helps."""

    line: int
    message: str
    spec: ToolSpec | None = None

    @property
    def place(self) -> str:
        return f"line {self.line}: {self.spec.name}: " if self.spec else f"line {self.line}: "


def check(scan: Scan, names: Names, modules: Collection[str], allowed: Collection[str] | None = None) -> list[Finding]:
    """What is wrong with the calls of tools. `modules` are the names that an import could give."""
    return list(islice(_Check(scan, names, modules, allowed).findings(), MOST_FOUND))


def words(findings: list[Finding], names: Names) -> tuple[str, tuple[str, ...]]:
    """One message with all of them, or with the first ones, and the signatures that help."""
    told: list[Finding] = []
    while len(told) < min(len(findings), MOST_TOLD) and len(_sentence(findings[: len(told) + 1])) < LONGEST_MESSAGE:
        told.append(findings[len(told)])
    told = told or findings[:1]
    message = cut(_sentence(told), LONGEST_MESSAGE)
    if len(findings) > len(told):
        message += f"; and {len(findings) - len(told)} more"
    left = LONGEST - len(message)
    hints: list[str] = []
    for spec in dict.fromkeys(one.spec for one in told if one.spec is not None):
        hint = _usage(spec, names.spelling(spec), left)
        if len(hint) <= left:
            hints.append(hint)
            left -= len(hint)
    return message, tuple(hints)


def _sentence(findings: list[Finding]) -> str:
    lines = groupby(findings, key=lambda one: one.place)
    return "; ".join(place + ", ".join(one.message for one in same) for place, same in lines)


def _usage(spec: ToolSpec, name: str, most: int) -> str:
    """The signature, or where that is long the names in it."""
    whole = signature(spec, name)
    if len(whole) <= most:
        return whole
    return cut(f"{name}({', '.join(map(spelled, spec.order))})", max(most, len(name) + 30))


def _said(problem: Problem) -> str:
    """Which arguments there are is said by the signature."""
    if problem.hint and problem.hint.startswith("known: "):
        return f"{problem.path}: {problem.got}"
    return str(problem)


class _Check:
    def __init__(
        self, scan: Scan, names: Names, modules: Collection[str], allowed: Collection[str] | None = None
    ) -> None:
        self._scan = scan
        self._names = names
        self._modules = modules
        self._allowed = allowed
        self._asked = 0
        self._aliases = dict(self._simple_aliases())

    @cached_property
    def _certain(self) -> set[int]:
        """What is reached for sure. A name that is nothing may as well stand where nobody comes by."""
        body = self._scan.tree.body if self._scan.tree else []
        nodes: list[ast.AST] = [statement for statement in body if isinstance(statement, SIMPLE)]
        for node in nodes:  # which grows while it is walked
            if not isinstance(node, PERHAPS):
                nodes += ast.iter_child_nodes(node)
        return set(map(id, nodes))

    @cached_property
    def _tried(self) -> set[int]:
        """What stands in a `try`, and so may fail."""
        tries = [node for node in ast.walk(self._scan.tree) if isinstance(node, ast.Try)] if self._scan.tree else []
        return {id(inner) for node in tries for part in node.body for inner in ast.walk(part)}

    def findings(self) -> Iterator[Finding]:
        yield from self._imports()
        for node in sorted(self._scan.calls, key=lambda call: (call.lineno, call.col_offset)):
            match node.func:
                case ast.Name(id=name):
                    yield from self._function(node, name)
                case ast.Attribute(value=ast.Name(id=word), attr=attr):
                    yield from self._method(node, word, attr)
                case _:
                    pass

    def _imports(self) -> Iterator[Finding]:
        """Modules that nobody has, where they are imported for sure: with them fails what comes before, too."""
        for node in self._scan.tree.body if self._scan.tree else []:
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                wanted = [node.module or ""]
            else:
                continue
            for module in wanted:
                if module not in self._modules and module != "__future__" and self._names.pack(module) is None:
                    way = ways_around.module(module, (*self._modules, *self._names.words()))
                    yield Finding(node.lineno, f"there is no module {module}; {way}")

    def _asyncio(self, node: ast.Call, attr: str) -> Iterator[Finding]:
        """What the sandbox's asyncio lacks: its calls would run the tools in them, and only then fail."""
        if id(node) in self._tried:
            return
        if attr not in ASYNCIO:
            yield Finding(node.lineno, f"there is no asyncio.{attr}; {ways_around.SIDE_BY_SIDE}")
        elif attr == "gather" and any(keyword.arg == "return_exceptions" for keyword in node.keywords):
            yield Finding(node.lineno, f"gather takes no return_exceptions; {ways_around.EACH_IN_TRY}")

    def _simple_aliases(self) -> Iterator[tuple[str, ToolSpec]]:
        """`f = pack.tool`, where nothing else is ever called f."""
        for node in self._scan.assignments:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(value=ast.Name(id=word), attr=attr)):
                    spec = self._names.tool(f"{word}.{attr}") if self._is_ours(word) else None
                    if spec is not None and self._scan.bound[name] == 1 and name not in self._scan.imported:
                        yield name, spec
                case _:
                    pass

    def _is_ours(self, word: str) -> bool:
        """Whether a name means what the catalogue says: the code does not give it another meaning."""
        if word in self._scan.bound:
            return False
        return self._scan.imported.get(word, word) == word

    def _function(self, node: ast.Call, name: str) -> Iterator[Finding]:
        spec = self._aliases.get(name) or (self._names.functions.get(name) if self._is_ours(name) else None)
        if spec is not None:
            yield from self._call(node, spec)
        elif self._is_nothing(name) and id(node) in self._certain:
            yield Finding(node.lineno, f"{name} is not defined{self._near(name, (*self._names.functions, *BUILTINS))}")

    def _is_nothing(self, name: str) -> bool:
        known = name in self._scan.bound or name in self._scan.imported or name in BUILTINS or self._scan.makes_names
        return not known and name not in self._names

    def _method(self, node: ast.Call, word: str, attr: str) -> Iterator[Finding]:
        if self._scan.imported.get(word) == "asyncio" and word not in self._scan.bound:
            yield from self._asyncio(node, attr)
            return
        if not self._is_ours(word):
            return
        pack = self._names.pack(word)
        if pack is None:
            if self._is_nothing(word) and word not in self._modules:
                yield Finding(node.lineno, f"there is no pack {word}{self._near(word, self._names.words())}")
        elif (spec := pack.tools.get(attr)) is not None:
            yield from self._call(node, spec)
        elif word not in self._modules and not attr.startswith("__"):
            known = [f"{word}.{tool}" for tool in pack.tools]
            near = self._near(f"{word}.{attr}", known) or f"; it has {', '.join(known[:8])}"
            yield Finding(node.lineno, f"{word}.{attr}: there is no such tool{near}")

    def _near(self, name: str, known: Iterable[str]) -> str:
        """What may have been meant: asked only for as many findings as are told, since it takes a while."""
        self._asked += 1
        return or_rather(name, known) if self._asked <= MOST_TOLD else ""

    def _call(self, node: ast.Call, spec: ToolSpec) -> Iterator[Finding]:
        if spec is CALL:
            yield from self._call_by_name(node)
            return
        yield from self._checked(node.lineno, spec, Arguments.of(node, spec))

    def _call_by_name(self, node: ast.Call) -> Iterator[Finding]:
        """`ot.call("name", {…})`: what it names is checked like a call of its own."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]):
                given = {}
            case ast.Call(args=[ast.Constant(value=str(name)), ast.Dict() as written], keywords=[]):
                given = literal(written)
            case _:
                return
        spec = self._names.catalogue.get(name) or self._names.tool(name)
        if spec is None:
            every = self._names.catalogue.names()
            known = every if self._allowed is None else [one for one in every if one in self._allowed]
            yield Finding(node.lineno, f"there is no tool {name!r}{self._near(name, known)}")
        elif given is not UNKNOWN:
            yield from self._checked(node.lineno, spec, Arguments(given, frozenset(given)))

    def _checked(self, line: int, spec: ToolSpec, arguments: Arguments) -> Iterator[Finding]:
        if self._allowed is not None and spec.name not in self._allowed:
            yield Finding(line, f"{spec.name} is not allowed here")
            return
        if arguments.wrong:
            yield Finding(line, arguments.wrong, spec)
            return
        try:
            problems = list(problems_with(spec, arguments))
        except SchemaError:
            return  # told when the call is made
        for problem in problems:
            yield Finding(line, _said(problem), spec)
