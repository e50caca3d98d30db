"""Checks every tool call in the code against the catalogue, before the code runs.

Only certain mistakes are reported: tools that do not exist, unknown or missing arguments, literals that violate the
schema. Everything else is validated when the call is made.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import groupby, islice
from typing import Any, NamedTuple

from onetool.core.call import WrongArgument
from onetool.core.errors import SchemaError, cut
from onetool.core.lenient import coerced, is_closed, taken
from onetool.core.schema_keywords import stands_alone
from onetool.core.signature import as_identifier, parameter_named, signature
from onetool.core.spec import ToolSpec
from onetool.core.text import did_you_mean, or_rather
from onetool.script.failures import EACH_IN_TRY, SIDE_BY_SIDE, without_module
from onetool.script.names import ALL, BUILTINS, CALL, LANGUAGE, ScriptNames, ScriptPack, may_be_named
from onetool.script.parse import MAX_MESSAGE, CodeScan

# Keywords beside `properties` that relate arguments to each other, so that only whole calls can be validated.
COMBINING_KEYWORDS = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas",
     "dependencies", "minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
     "enum", "const"}
)  # fmt: skip
DEFINITIONS = frozenset({"$defs", "definitions"})


class _Unknown:
    """A marker for a value that is not literal."""


UNKNOWN: Any = _Unknown()


class LiteralArguments(NamedTuple):
    """The arguments of a call in the code."""

    literals: Mapping[str, Any]
    given: frozenset[str]
    complete: bool = True  # no further arguments come from `*` or `**`
    wrong: str | None = None  # too many arguments, or two values for one

    @classmethod
    def of(cls, node: ast.Call, spec: ToolSpec) -> "LiteralArguments":
        values: dict[str, Any] = {}
        wrong = None
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        complete = len(plain) == len(node.args) and all(keyword.arg for keyword in node.keywords)
        if len(plain) > len(spec.order):
            wrong = f"takes at most {len(spec.order)} arguments, got {len(plain)}"
        if len(plain) == len(node.args):  # otherwise positions are unknown
            values = {name: literal_value(argument) for name, argument in zip(spec.order, plain, strict=False)}
        for keyword in node.keywords:
            if keyword.arg is not None:
                name = parameter_named(spec, keyword.arg)
                wrong = f"got {name} twice" if name in values else wrong
                values[name] = literal_value(keyword.value)
        literals = {name: value for name, value in values.items() if value is not UNKNOWN}
        return cls(literals, frozenset(values), complete, wrong)


def literal_value(node: ast.expr) -> Any:
    """Return the value of a literal as the tool would receive it; UNKNOWN for every other expression."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return _all_known([literal_value(item) for item in items])
        case ast.Dict(keys=keys, values=items):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            values = _all_known([literal_value(item) for item in items])
            if values is UNKNOWN or not all(isinstance(name, str) for name in names):
                return UNKNOWN
            return dict(zip(names, values, strict=True))
        case _:
            return UNKNOWN


def _all_known(values: list[Any]) -> Any:
    return UNKNOWN if any(value is UNKNOWN for value in values) else values


def problems_with(spec: ToolSpec, arguments: LiteralArguments) -> Iterator[WrongArgument]:
    """Yield the problems that validation of the call would report, and no others."""
    if arguments.complete and len(arguments.literals) == len(arguments.given):
        yield from taken(spec, arguments.literals).problems
        return
    if not COMBINING_KEYWORDS.isdisjoint(spec.input_schema):
        return
    if spec.input_schema.get("additionalProperties", False) is False:  # {} accepts anything
        for name in sorted(arguments.given.difference(spec.order)):
            known, near = ", ".join(sorted(spec.order)), did_you_mean(name, spec.order)
            if near is None and spec.lenient and not is_closed(spec.input_schema):
                continue  # passed on to the tool
            hint = near or (f"known: {known}" if known else "it takes no arguments")
            yield WrongArgument(path=name, expected="", got="unknown argument", hint=hint)
    if arguments.complete:
        for name in spec.input_schema.get("required") or ():
            if name not in arguments.given:
                yield WrongArgument(path=name, expected="a value (required)", got="nothing")
    for name, value in arguments.literals.items() if _can_stand_alone(spec) else ():
        if name in spec.order and name not in spec.secrets:
            for problem in spec.argument(name).check(coerced(spec, name, value) if spec.lenient else value):
                joint = "" if not problem.path or problem.path.startswith("[") else "."
                path = f"{name}{joint}{problem.path}"
                yield WrongArgument(path=path, expected=problem.expected, got=problem.got, hint=problem.hint)


@lru_cache(maxsize=4096)
def _can_stand_alone(spec: ToolSpec) -> bool:
    """Return whether an argument's schema can be validated alone: it may refer only to shared definitions."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    if any(isinstance(schema, Mapping) and not DEFINITIONS.isdisjoint(schema) for schema in properties.values()):
        return False
    return stands_alone(spec.input_schema)


# Checking calls

MAX_SHOWN = 5
ASYNCIO = ("gather", "run", "sleep")  # the functions that exist
SIMPLE_STATEMENTS = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)
CONDITIONAL = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MAX_FINDINGS = 100  # each may search for similar names, which takes time
MAX_TEXT = 460  # characters of the whole message


class CodeFinding(NamedTuple):
    """A mistake, its line, and the tool it concerns, whose signature helps to fix it.

    `node` is the wrong part of the syntax tree, if known.
    """

    line: int
    message: str
    spec: ToolSpec | None = None
    node: ast.expr | ast.stmt | None = None

    @property
    def place(self) -> str:
        return f"line {self.line}: {self.spec.name}: " if self.spec else f"line {self.line}: "


def check(
    scan: CodeScan, names: ScriptNames, modules: Collection[str], allowed: Collection[str] | None = None
) -> list[CodeFinding]:
    """Return the mistakes in calls of tools. `modules` are the importable names."""
    return list(islice(_Check(scan, names, modules, allowed).findings(), MAX_FINDINGS))


def called_tools(scan: CodeScan, names: ScriptNames, modules: Collection[str]) -> list[str]:
    """Return the tools that the code calls, each once, in order of their first call."""
    return list(dict.fromkeys(_Check(scan, names, modules).called()))


def findings_text(findings: list[CodeFinding], names: ScriptNames) -> tuple[str, tuple[str, ...]]:
    """Return one message with all mistakes, or with the first ones, and the signatures that help."""
    shown: list[CodeFinding] = []
    while len(shown) < min(len(findings), MAX_SHOWN) and len(_sentence(findings[: len(shown) + 1])) < MAX_MESSAGE:
        shown.append(findings[len(shown)])
    shown = shown or findings[:1]
    message = cut(_sentence(shown), MAX_MESSAGE)
    if len(findings) > len(shown):
        message += f"; and {len(findings) - len(shown)} more"
    left = MAX_TEXT - len(message)
    hints: list[str] = []
    for spec in dict.fromkeys(finding.spec for finding in shown if finding.spec is not None):
        name = names.spelling(spec)
        hint = signature(spec, name)
        if len(hint) > left:  # only its names
            hint = cut(f"{name}({', '.join(map(as_identifier, spec.order))})", max(left, len(name) + 30))
        if len(hint) <= left:
            hints.append(hint)
            left -= len(hint)
    return message, tuple(hints)


def _sentence(findings: list[CodeFinding]) -> str:
    lines = groupby(findings, key=lambda finding: finding.place)
    return "; ".join(place + ", ".join(finding.message for finding in same) for place, same in lines)


class _Check:
    def __init__(
        self, scan: CodeScan, names: ScriptNames, modules: Collection[str], allowed: Collection[str] | None = None
    ) -> None:
        self._scan = scan
        self._names = names
        self._modules = modules
        self._allowed = allowed
        self._asked = 0
        self._aliases: dict[str, ToolSpec] = {}  # by `f = pack.tool`, if the name has no other value
        for node in scan.assignments:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(value=ast.Name(id=word), attr=attr)):
                    spec = names.tool(f"{word}.{attr}") if self._is_ours(word) else None
                    if spec is not None and scan.bound[name] == 1 and name not in scan.imported:
                        self._aliases[name] = spec
                case _:
                    pass

    @cached_property
    def _certain(self) -> set[int]:
        """The nodes that certainly run. Unknown names elsewhere are not reported."""
        body = self._scan.tree.body if self._scan.tree else []
        nodes: list[ast.AST] = [statement for statement in body if isinstance(statement, SIMPLE_STATEMENTS)]
        for node in nodes:  # which grows during the loop
            if not isinstance(node, CONDITIONAL):
                nodes += ast.iter_child_nodes(node)
        return set(map(id, nodes))

    @cached_property
    def _tried(self) -> set[int]:
        """The nodes inside a `try`, which may fail."""
        tries = [node for node in ast.walk(self._scan.tree) if isinstance(node, ast.Try)] if self._scan.tree else []
        return {id(inner) for node in tries for part in node.body for inner in ast.walk(part)}

    def findings(self) -> Iterator[CodeFinding]:
        yield from self._imports()
        for node in sorted(self._scan.calls, key=lambda call: (call.lineno, call.col_offset)):
            match node.func:
                case ast.Name(id=name):
                    yield from self._function(node, name, id(node) in self._certain)
                case ast.Attribute(value=ast.Name(id=word), attr=attr):
                    yield from self._method(node, word, attr)
                case _:
                    pass

    def called(self) -> Iterator[str]:
        """Yield the names of the tools that the code calls, as far as known without running it."""
        for node in self._scan.calls:
            spec = self._tool_of(node.func)
            if spec is CALL and node.args and isinstance(tool_name := literal_value(node.args[0]), str):
                spec = self._named_tool(tool_name)
            if spec is ALL and node.args:
                spec = self._tool_of(node.args[0])
            if spec is not None and spec not in LANGUAGE:
                yield spec.name

    def _imports(self) -> Iterator[CodeFinding]:
        """Yield imports of missing modules that certainly run, since the whole code would fail."""
        for node in self._scan.tree.body if self._scan.tree else []:
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                if module not in self._modules and module != "__future__" and self._names.pack(module) is None:
                    advice = without_module(module, (*self._modules, *self._names.words(self._allowed)))
                    yield CodeFinding(node.lineno, f"there is no module {module}; {advice}", node=node)

    def _asyncio(self, node: ast.Call, attr: str) -> Iterator[CodeFinding]:
        """Yield uses of functions that the sandbox's asyncio lacks, which would fail only after their tools ran."""
        if id(node) in self._tried:
            return
        if attr not in ASYNCIO:
            yield CodeFinding(node.lineno, f"there is no asyncio.{attr}; {SIDE_BY_SIDE}", node=node)
        elif attr == "gather" and any(keyword.arg == "return_exceptions" for keyword in node.keywords):
            message = f"gather does not support return_exceptions; {EACH_IN_TRY}"
            yield CodeFinding(node.lineno, message, node=node)

    def _is_ours(self, word: str) -> bool:
        """Return whether a name has its meaning from the catalogue, because the code does not bind it."""
        if word in self._scan.bound:
            return False
        return self._scan.imported.get(word, word) == word

    def _function(self, node: ast.Call, name: str, is_certain: bool) -> Iterator[CodeFinding]:
        if (spec := self._tool_of(node.func)) is not None:
            yield from self._call(node, spec)
        elif self._is_undefined(name) and is_certain:
            functions = [word for word, spec in self._names.functions.items() if may_be_named(spec, self._allowed)]
            near = self._near(name, (*functions, *BUILTINS))
            yield CodeFinding(node.lineno, f"{name} is not defined{near}", node=node.func)
        elif is_certain and self._is_ours(name) and (pack := self._names.pack(name)) is not None:
            yield CodeFinding(node.lineno, f"{name} is a pack{self._tools_in(pack)}", node=node.func)

    def _is_undefined(self, name: str) -> bool:
        known = name in self._scan.bound or name in self._scan.imported or name in BUILTINS or self._scan.makes_names
        return not known and name not in self._names

    def _method(self, node: ast.Call, word: str, attr: str) -> Iterator[CodeFinding]:
        if self._scan.imported.get(word) == "asyncio" and word not in self._scan.bound:
            yield from self._asyncio(node, attr)
            return
        if not self._is_ours(word):
            return
        pack = self._names.pack(word)
        if pack is None:
            if self._is_undefined(word) and word not in self._modules:
                near = self._near(word, self._names.words(self._allowed))
                yield CodeFinding(node.lineno, f"there is no pack {word}{near}", node=node.func)
            elif word in self._names.functions and word not in self._modules and not attr.startswith("__"):
                yield CodeFinding(node.lineno, f"there is no pack {word}; {word}() is a tool", node=node.func)
        elif (spec := pack.tools.get(attr)) is not None:
            yield from self._call(node, spec)
        elif word not in self._modules and not attr.startswith("__"):
            known = [f"{word}.{tool}" for tool in pack.named(self._allowed)]
            near = self._near(f"{word}.{attr}", known) or self._tools_in(pack)
            yield CodeFinding(node.lineno, f"{word}.{attr}: there is no such tool{near}", node=node.func)

    def _tools_in(self, pack: ScriptPack) -> str:
        known = [f"{pack.word}.{tool}" for tool in pack.named(self._allowed)[:8]]
        return f"; it has {', '.join(known)}" if known else ""

    def _near(self, name: str, known: Iterable[str]) -> str:
        """Return similar names. Called only for findings that are shown, since it takes a while."""
        self._asked += 1
        return or_rather(name, known) if self._asked <= MAX_SHOWN else ""

    def _call(self, node: ast.Call, spec: ToolSpec) -> Iterator[CodeFinding]:
        if spec is CALL:
            yield from self._call_by_name(node)
            return
        if spec is ALL:
            yield from self._all(node)
            return
        yield from self._checked(node, spec, LiteralArguments.of(node, spec))

    def _all(self, node: ast.Call) -> Iterator[CodeFinding]:
        """Check `ot.all(pack.tool, …)` like the call `pack.tool(…)`."""
        keywords = [keyword for keyword in node.keywords if keyword.arg not in ("limit", "key")]
        has_args = any(keyword.arg == "args" for keyword in keywords)
        match node.args:
            case [ast.Constant(value=str(name))]:
                if (spec := self._named_tool(name)) is None:
                    yield self._no_tool(node, name)
                elif not has_args:
                    call = ast.copy_location(ast.Call(func=node.func, args=[], keywords=keywords), node)
                    yield from self._checked(call, spec, LiteralArguments.of(call, spec))
            case [ast.Attribute(value=ast.Name()) | ast.Name() as tool] if not has_args:
                call = ast.copy_location(ast.Call(func=tool, args=[], keywords=keywords), node)
                match tool:
                    case ast.Name(id=name):  # perhaps a parameter, or a variable with any value
                        yield from self._function(call, name, id(node) in self._certain)
                    case ast.Attribute(value=ast.Name(id=word), attr=attr):
                        yield from self._method(call, word, attr)
            case _:
                pass

    def _tool_of(self, node: ast.expr) -> ToolSpec | None:
        """Return the tool that an expression stands for, if known."""
        match node:
            case ast.Name(id=name):
                return self._aliases.get(name) or (self._names.functions.get(name) if self._is_ours(name) else None)
            case ast.Attribute(value=ast.Name(id=word), attr=attr) if self._is_ours(word):
                return self._names.tool(f"{word}.{attr}")
            case ast.Constant(value=str(name)):
                return self._named_tool(name)
            case _:
                return None

    def _named_tool(self, name: str) -> ToolSpec | None:
        return self._names.catalogue.get(name) or self._names.tool(name)

    def _no_tool(self, node: ast.Call, name: str) -> CodeFinding:
        known = self._names.catalogue.names()
        if self._allowed is not None:
            known = [tool for tool in known if tool in self._allowed]
        return CodeFinding(node.lineno, f"there is no tool {name!r}{self._near(name, known)}", node=node)

    def _call_by_name(self, node: ast.Call) -> Iterator[CodeFinding]:
        """Check `ot.call("name", {…})` like a call of the named tool."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]):
                args = {}
            case ast.Call(args=[ast.Constant(value=str(name)), ast.Dict() as literal], keywords=[]):
                args = literal_value(literal)
            case _:
                return
        spec = self._named_tool(name)
        if spec is None:
            yield self._no_tool(node, name)
        elif args is not UNKNOWN:
            yield from self._checked(node, spec, LiteralArguments(args, frozenset(args)))

    def _checked(self, node: ast.Call, spec: ToolSpec, arguments: LiteralArguments) -> Iterator[CodeFinding]:
        line = node.lineno
        if self._allowed is not None and spec.name not in self._allowed:
            yield CodeFinding(line, f"{spec.name} is not allowed here", node=node.func)
            return
        if arguments.wrong:
            yield CodeFinding(line, arguments.wrong, spec, node)
            return
        if spec.prepare is not None or not spec.strict:
            return  # the arguments are changed before validation, or validated by the tool's server
        try:
            problems = list(problems_with(spec, arguments))
        except SchemaError:
            return  # reported when the call is made
        for problem in problems:
            # The signature lists the known arguments.
            is_unknown = problem.hint and problem.hint.startswith("known: ")
            yield CodeFinding(line, f"{problem.path}: {problem.got}" if is_unknown else str(problem), spec, node)
