"""Finds awaited calls: these are answered with a future, all others immediately with their value.

`pack.tool(…)` returns its value, and `await asyncio.gather(pack.tool(…), …)` runs tools concurrently. A call is awaited
if its value reaches an `await` or a `gather`, directly or through names, lists, dicts, comprehensions and the code's
own functions. A value that can't be followed counts as not awaited.

Values are followed backwards, from every `await` to the expressions that its value may come from. A path selects the
part of an expression's value: in `for name, call in pairs: await call` it is (ANY, 1) of `pairs`.
"""

import ast
from collections.abc import Iterable

from onetool.script.bindings import TAKING, Binding, Bindings, Path, PathStep, step

GATHERING = {"gather", "run"}
SAME_ITEMS = {"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "deque"}
MAX_DEPTH = 6  # nested parts of a value
MAX_STEPS = 200_000  # well under a second; real code needs less than a hundredth

ANY, CALL, DONE = PathStep.ANY, PathStep.CALL, PathStep.DONE


def awaited_calls(tree: ast.Module) -> set[int]:
    """Return the `id`s of the call nodes whose value reaches an `await`."""
    return _Flow(tree).awaited


class _Flow:
    """A data flow analysis, backwards from every `await` and `gather` to the calls that their values come from."""

    def __init__(self, tree: ast.Module) -> None:
        self.awaited: set[int] = set()
        self._code = Bindings(tree)
        # The code's names for asyncio, and for its `gather` and `run`.
        self._asyncio, self._gathering = {"asyncio"}, set[str]()
        for node in self._code.starts:
            if isinstance(node, ast.Import):
                self._asyncio.update(alias.asname or alias.name for alias in node.names if alias.name == "asyncio")
            elif isinstance(node, ast.ImportFrom) and node.module == "asyncio":
                self._gathering.update(alias.asname or alias.name for alias in node.names if alias.name in GATHERING)
        self._seen: set[tuple[int, Path]] = set()
        self._waiting: list[tuple[ast.AST, Path]] = []
        self._left = MAX_STEPS
        for node in self._code.starts:
            if isinstance(node, ast.Await):
                self._add(node.value)
            elif isinstance(node, ast.Call) and self._gathers(node.func):
                self._each(node.args, ())
        while self._waiting and self._left > self._code.looked_at:
            self._left -= 1
            self._follow(*self._waiting.pop())

    def _gathers(self, function: ast.expr) -> bool:
        """Return whether the function is `asyncio.gather`, or `asyncio.run`, which awaits its argument, too."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=attr):
                return module in self._asyncio and attr in GATHERING
            case ast.Name(id=name):
                return name in self._gathering
            case _:
                return False

    def _add(self, node: ast.AST, path: Path = ()) -> None:
        """Record that the value of an expression, or a part of it, is awaited."""
        if len(path) <= MAX_DEPTH and (id(node), path) not in self._seen:
            self._seen.add((id(node), path))
            self._waiting.append((node, path))

    def _each(self, nodes: Iterable[ast.AST], path: Path) -> None:
        for node in nodes:
            self._add(node, path)

    def _follow(self, node: ast.AST, path: Path) -> None:
        match node:
            case ast.Name():
                self._follow_bindings(self._code.of_name(node), path)
            case ast.Attribute():
                self._follow_bindings(self._code.of_attribute(node), path)
            case ast.arg():
                self._follow_parameter(node, path)
            case ast.Call():
                self._follow_call(node, path)
            case ast.Await(value=ast.Call(func=function)):
                self._add(function, (DONE, *path))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                if path[:1] == (DONE if isinstance(node, ast.AsyncFunctionDef) else CALL,):
                    self._each(self._code.returns[id(node)], path[1:])
            case ast.IfExp(body=one, orelse=other):
                self._each((one, other), path)
            case ast.BoolOp(values=values):
                self._each(values, path)
            case ast.NamedExpr(value=inner):
                self._add(inner, path)
            case ast.Starred(value=inner):
                self._add(inner, (ANY, *path))
            case ast.Subscript(value=inner, slice=ast.Slice()):
                moved = path and path[0] not in (CALL, DONE)  # items of a slice have other indexes
                self._add(inner, (ANY, *path[1:]) if moved else path)
            case ast.Subscript(value=inner, slice=key):
                self._add(inner, (step(key), *path))
            case _:
                if path and path[0] not in (CALL, DONE):
                    self._follow_part(node, path[0], path[1:])

    def _follow_part(self, node: ast.AST, first: object, rest: Path) -> None:
        """Follow a part of a literal or comprehension."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                stars = any(isinstance(item, ast.Starred) for item in items)
                if isinstance(first, int) and not stars:
                    items = items[first : first + 1]
                self._each(items, rest)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        self._add(value, (first, *rest))
                    elif _may_be(step(key), first):
                        self._add(value, rest)
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.SetComp(elt=item) | ast.DictComp(value=item):
                self._add(item, rest)
            case ast.BinOp(left=left, right=right):
                self._each((left, right), (ANY, *rest))
            case _:
                pass

    def _follow_bindings(self, bindings: list[Binding], path: Path) -> None:
        self._left -= len(bindings)
        for binding in bindings:
            steps = path[: binding.depth]
            if not binding.certain and not path:
                continue  # an added value is only a part of the name's value
            if len(steps) < binding.depth or CALL in steps or DONE in steps:
                continue
            if steps and not _may_be(binding.key, steps[-1]):
                continue
            self._add(binding.value, (*binding.path, *path[binding.depth :]))

    def _follow_call(self, call: ast.Call, path: Path) -> None:
        if not path:
            self.awaited.add(id(call))
        self._add(call.func, (CALL, *path))
        match call.func:
            case ast.Attribute(value=inner, attr=attr) if attr in TAKING:
                self._add(inner, (step(call.args[0]) if call.args and attr != "pop" else ANY, *path))
                self._each(call.args[1:], path)
            case ast.Name(id="next"):
                self._each(call.args[:1], (ANY, *path))
            case _ if path and path[0] not in (CALL, DONE):
                self._through_builtin(call, path[0], path[1:])
            case _:
                pass

    def _through_builtin(self, call: ast.Call, first: object, rest: Path) -> None:
        """Follow calls of built-in functions that return items of their arguments."""
        arguments = call.args
        second, after = (rest[0], rest[1:]) if rest else (None, ())
        match call.func:
            case ast.Attribute(value=inner, attr="values" | "copy"):
                self._add(inner, (ANY, *rest))
            case ast.Attribute(value=inner, attr="items") if second in (1, ANY):
                self._add(inner, (ANY, *after))
            case ast.Name(id=name) if name in SAME_ITEMS:
                self._each(arguments[:1], (ANY, *rest))
            case ast.Name(id="filter"):
                self._each(arguments[1:], (ANY, *rest))
            case ast.Name(id="sum") | ast.Attribute(attr="from_iterable"):
                self._each(arguments[:1], (ANY, ANY, *rest))
            case ast.Name(id="chain") | ast.Attribute(attr="chain"):
                self._each(arguments, (ANY, *rest))
            case ast.Name(id="enumerate") if second in (1, ANY):
                self._each(arguments[:1], (ANY, *after))
            case ast.Name(id="zip") if second is not None:
                self._each(
                    (argument for index, argument in enumerate(arguments) if _may_be(index, second)), (ANY, *after)
                )
            case ast.Name(id="dict"):
                self._each(arguments, (ANY, 1, *rest))
                self._each((argument.value for argument in call.keywords if _may_be(argument.arg, first)), rest)
            case _:
                pass

    def _follow_parameter(self, parameter: ast.arg, path: Path) -> None:
        """Follow an awaited parameter to its arguments in calls of the function."""
        function = self._code.owner[id(parameter)]
        ordered = [*function.args.posonlyargs, *function.args.args]
        for name in self._code.names_of[id(function)]:
            own = ordered[1:] if name.startswith(".") else ordered
            calls = self._code.calls[name]
            self._left -= len(calls)
            for call in calls:
                if parameter is function.args.vararg:
                    if path:
                        self._each(call.args[len(own) :], path[1:])
                elif parameter in own:
                    index = own.index(parameter)
                    starred = [argument for argument in call.args[: index + 1] if isinstance(argument, ast.Starred)]
                    # The index within a starred argument is unknown.
                    self._each(starred[:1] or call.args[index : index + 1], path)
                self._each((argument.value for argument in call.keywords if argument.arg == parameter.arg), path)
                self._each(
                    (argument.value for argument in call.keywords if argument.arg is None), (parameter.arg, *path)
                )


def _may_be(key: object, other: object) -> bool:
    return key is ANY or other is ANY or key == other
