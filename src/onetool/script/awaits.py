"""Finds the calls that are answered with a future: those whose value is only awaited or gathered.

`pack.tool(…)` returns its value, and `await asyncio.gather(pack.tool(…), …)` runs tools concurrently. A call gets
a future if it stands in an `await` or a `gather`, directly or through lists and names that are used for nothing else.
Every other call is answered with its value, and `await` and `gather` accept that, too (`TOLERANT` in `rewrite.py`):
such calls run one after the other.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

GATHERING = {"asyncio.gather", "asyncio.run", "__onetool_gather", "__onetool_await"}  # the last two: see `TOLERANT`
COPYING = {"list", "tuple", "reversed", "iter"}  # functions that return the items of their argument


class Step(Enum):
    """The relation of a bound value to the value of the name."""

    SAME = "the value itself"
    ITEM = "an item of the name's value"
    CONTAINER = "has the name's value as an item"


class Binding(NamedTuple):
    value: ast.expr
    step: Step
    read: int = 0  # the `id` of the name's node, if this statement reads the name to change its value


def awaited_calls(nodes: Iterable[ast.AST], imported: Mapping[str, str]) -> set[int]:
    """Return the `id`s of the calls that are answered with a future. `imported` are names and what they stand for."""
    return _Awaits(list(nodes), imported).calls()


def gathers(function: ast.expr, imported: Mapping[str, str]) -> str | None:
    """Return the full name of a function that awaits its arguments, such as `asyncio.gather`; None for others."""
    match function:
        case ast.Attribute(value=ast.Name(id=module), attr=attr):
            name = f"{imported.get(module, module)}.{attr}"
        case ast.Name(id=word):
            name = imported.get(word, word)
        case _:
            return None
    return name if name in GATHERING else None


class _Awaits:
    """An analysis of names without regard to scopes: a name counts as awaited if all its uses are."""

    def __init__(self, nodes: list[ast.AST], imported: Mapping[str, str]) -> None:
        self._imported = imported
        self._bindings: defaultdict[str, list[Binding]] = defaultdict(list)
        self._functions: defaultdict[str, list[ast.arguments]] = defaultdict(list)
        self._reads: list[ast.Name] = []
        self._awaited_reads: set[int] = set()
        self._calls: defaultdict[int, set[str]] = defaultdict(set)  # with the names that hold their futures
        self._takers: defaultdict[str, set[str]] = defaultdict(set)  # names, with the names that take values from them
        self._seen: set[tuple[int | str, bool]] = set()
        self._waiting: list[tuple[ast.expr, bool, str]] = []
        for node in nodes:
            self._note(node)
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self._bind_arguments(node, node.func.id)
        while self._waiting:
            self._follow(*self._waiting.pop())

    def calls(self) -> set[int]:
        """Return the calls whose futures are only held by names that are used for nothing else."""
        used = {read.id for read in self._reads if id(read) not in self._awaited_reads}
        waiting = list(used)
        givers: defaultdict[str, set[str]] = defaultdict(set)
        for name, takers in self._takers.items():
            for taker in takers:
                givers[taker].add(name)
        while waiting:
            for name in givers[waiting.pop()] - used:
                used.add(name)
                waiting.append(name)
        return {call for call, names in self._calls.items() if names.isdisjoint(used)}

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(ctx=ast.Load()):
                self._reads.append(node)
            case ast.Await(value=value):
                self._waiting.append((value, False, ""))
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                self._reads.append(target)
                self._bindings[name].append(Binding(value, Step.SAME, id(target)))
            case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
                self._bind_items(target, items)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name) as read, attr="append" | "add"), args=[item]):
                self._bindings[name].append(Binding(item, Step.ITEM, id(read)))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name) as read, attr="extend"), args=[items]):
                self._bindings[name].append(Binding(items, Step.SAME, id(read)))
            case ast.FunctionDef(name=name, args=arguments) | ast.AsyncFunctionDef(name=name, args=arguments):
                self._functions[name].append(arguments)
            case ast.Call(func=function, args=args) if gathers(function, self._imported):
                self._waiting += [(argument, False, "") for argument in args]
            case _:
                pass

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._bindings[name].append(Binding(value, Step.SAME))
            case ast.Subscript(value=ast.Name(id=name) as read), _:
                self._bindings[name].append(Binding(value, Step.ITEM, id(read)))
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                if not any(isinstance(item, ast.Starred) for item in (*targets, *values)):
                    for one, other in zip(targets, values, strict=True):
                        self._bind(one, other)
            case _:
                pass

    def _bind_items(self, target: ast.expr, items: ast.expr) -> None:
        """Record the names bound to the items of an iterable."""
        names, inner = [target], [items]
        if isinstance(target, ast.Tuple):
            match items:
                case ast.Call(func=ast.Name(id="enumerate"), args=[values, *_]):
                    names, inner = target.elts[1:], [values]
                case ast.Call(func=ast.Attribute(value=values, attr="items"), args=[]):
                    names, inner = target.elts[1:], [values]
                case ast.Call(func=ast.Name(id="zip"), args=args):
                    names, inner = target.elts, args
                case _:
                    return
        for name, values in zip(names, inner, strict=False):
            if isinstance(name, ast.Name):
                self._bindings[name.id].append(Binding(values, Step.CONTAINER))

    def _bind_arguments(self, call: ast.Call, name: str) -> None:
        """Bind the parameters of the code's own function to the arguments of a call."""
        functions = self._functions[name]
        if len(functions) != 1 or name in self._bindings:
            return
        (arguments,) = functions
        parameters = [*arguments.posonlyargs, *arguments.args]
        for index, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                break
            if index < len(parameters):
                self._bindings[parameters[index].arg].append(Binding(argument, Step.SAME))
            elif arguments.vararg is not None:
                self._bindings[arguments.vararg.arg].append(Binding(argument, Step.ITEM))
        for keyword in call.keywords:
            if keyword.arg is not None:
                self._bindings[keyword.arg].append(Binding(keyword.value, Step.SAME))

    def _follow(self, node: ast.expr, many: bool, holder: str) -> None:
        """Follow an awaited expression, or one whose items are awaited (`many`), to the calls that it comes from."""
        match node:
            case ast.Name(id=name):
                self._awaited_reads.add(id(node))
                if holder:
                    self._takers[name].add(holder)
                self._follow_name(name, many)
            case ast.IfExp(body=body, orelse=other):
                self._add((body, other), many, holder)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                if holder:
                    self._takers[name].add(holder)
                self._add((value,), many, name)
            case _ if many:
                self._follow_items(node, holder)
            case ast.Call():
                self._calls[id(node)].update({holder} - {""})
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._add((inner,), True, holder)
            case _:
                pass

    def _follow_items(self, node: ast.expr, holder: str) -> None:
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Dict(values=items):
                self._add(items, False, holder)
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.DictComp(value=item):
                self._add((item,), False, holder)
            case ast.Call(func=ast.Name(id=word), args=[inner]) if word in COPYING:
                self._add((inner,), True, holder)
            case ast.Call(func=ast.Attribute(value=inner, attr="values" | "copy"), args=[]):
                self._add((inner,), True, holder)
            case ast.Subscript(value=inner, slice=ast.Slice()) | ast.Starred(value=inner):
                self._add((inner,), True, holder)
            case ast.BinOp(left=left, right=right):
                self._add((left, right), True, holder)
            case _:
                pass

    def _follow_name(self, name: str, many: bool) -> None:
        if (name, many) in self._seen:
            return
        self._seen.add((name, many))
        for value, step, read in self._bindings[name]:
            if step is Step.SAME:
                self._add((value,), many, name)
            elif many == (step is Step.ITEM):
                self._add((value,), not many, name)
            else:
                continue
            if many:
                self._awaited_reads.add(read)

    def _add(self, nodes: Iterable[ast.expr], many: bool, holder: str) -> None:
        self._waiting += [(node, many, holder) for node in nodes]
