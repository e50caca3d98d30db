"""Which calls run side by side: those whose value is only awaited. All others give their value at once."""

import asyncio
import textwrap
import warnings

import pytest
from helpers import calls, each, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.core.errors import ToolFailure
from onetool.script.parse import CodeScan

# Each with its value, and with the most calls of `t.later` that are under way at once: 1 where a value takes a way that
# nobody follows. Then the calls run one after the other.
SCRIPTS = {
    "a call is its value": ("t.now(n=1) + 1", 2, 0),
    "awaited": ("await t.later(n=1)", 1, 1),
    "awaited one after the other": ("[await t.later(n=i) for i in range(3)]", [0, 1, 2], 1),
    "gathered": ("await asyncio.gather(t.later(n=1), t.later(n=2))", [1, 2], 2),
    "an argument of a gathered call": ("await asyncio.gather(t.later(n=len(str(t.now(n=100)))))", [3], 1),
    "an awaited argument": ("t.now(n=await t.later(n=3))", 3, 1),
    "in a text": ("f'{await t.later(n=3)} {t.now(n=4)}'", "3 4", 1),
    "a list": ("cs = [t.later(n=i) for i in range(3)]\nawait asyncio.gather(*cs)", [0, 1, 2], 3),
    "a tuple of a generator": ("cs = tuple(t.later(n=i) for i in range(2))\nawait asyncio.gather(*cs)", [0, 1], 2),
    "appended": (
        """
        cs = []
        for i in range(3):
            cs.append(t.later(n=i))
        await asyncio.gather(*cs)
        """,
        [0, 1, 2],
        3,
    ),
    "extended": ("cs = []\ncs.extend(t.later(n=i) for i in range(3))\nawait asyncio.gather(*cs)", [0, 1, 2], 3),
    "added": ("cs = [t.later(n=0)]\ncs += [t.later(n=1)]\nawait asyncio.gather(*cs)", [0, 1], 2),
    "a list that grows": ("cs = []\ncs = cs + [t.later(n=1)]\nawait asyncio.gather(*cs)", [1], 1),
    "two lists": ("a, b = [t.later(n=0)], [t.later(n=1)]\nawait asyncio.gather(*(a + b))", [0, 1], 2),
    "two starred lists": ("a, b = [t.later(n=0)], [t.later(n=1)]\nawait asyncio.gather(*a, *b)", [0, 1], 2),
    "a list in a list": ("a = [t.later(n=0)]\nb = [*a, t.later(n=1)]\nawait asyncio.gather(*b)", [0, 1], 2),
    "lists of lists": (
        "ls = [[t.later(n=0)], [t.later(n=1)]]\nawait asyncio.gather(*[c for l in ls for c in l])",
        [0, 1],
        1,
    ),
    "a slice at a time": (
        """
        cs = [t.later(n=i) for i in range(4)]
        out = []
        for i in range(0, 4, 2):
            out += await asyncio.gather(*cs[i:i + 2])
        out
        """,
        [0, 1, 2, 3],
        4,
    ),
    "a batch at a time": (
        """
        out = []
        for i in range(0, 4, 2):
            out += await asyncio.gather(*[t.later(n=i + j) for j in range(2)])
        out
        """,
        [0, 1, 2, 3],
        2,
    ),
    "each awaited from a list": (
        """
        cs = [t.later(n=i) for i in range(3)]
        out = []
        for c in cs:
            out.append(await c)
        out
        """,
        [0, 1, 2],
        3,
    ),
    "popped": (
        "cs = [t.later(n=i) for i in range(2)]\nout = []\nwhile cs:\n    out.append(await cs.pop(0))\nout",
        [0, 1],
        1,
    ),
    "enumerated": ("cs = [t.later(n=i) for i in range(2)]\n[i + await c for i, c in enumerate(cs)]", [0, 2], 2),
    "zipped": (
        "xs = [t.now(n=i) for i in range(2)]\ncs = [t.later(n=i) for i in xs]\n[x + await c for x, c in zip(xs, cs)]",
        [0, 2],
        2,
    ),
    "a dict": (
        "d = {i: t.later(n=i) for i in range(3)}\ndict(zip(d, await asyncio.gather(*d.values())))",
        {"0": 0, "1": 1, "2": 2},
        1,
    ),
    "a dict that is filled": (
        "d = {}\nfor i in range(2):\n    d[i] = t.later(n=i)\n{k: await c for k, c in d.items()}",
        {"0": 0, "1": 1},
        2,
    ),
    "a dict of lists": (
        """
        d = {}
        for i in range(3):
            d.setdefault(i % 2, []).append(t.later(n=i))
        [await asyncio.gather(*d[k]) for k in d]
        """,
        [[0, 2], [1]],
        1,
    ),
    "one key of a dict": (
        "d = {'name': t.now(n=1), 'job': t.later(n=2)}\n[d['name'] + 1, await d['job']]",
        [2, 2],
        1,
    ),
    "one key that was set": (
        "d = {}\nd['name'] = t.now(n=1)\nd['job'] = t.later(n=2)\n[d['name'] + 1, await d['job']]",
        [2, 2],
        1,
    ),
    "pairs of a value and a call": (
        "ps = [(t.now(n=i), t.later(n=i)) for i in range(2)]\n[v + await c for v, c in ps]",
        [0, 2],
        1,
    ),
    "the second of each pair": (
        "ps = [('a', t.later(n=1)), ('b', t.later(n=2))]\nawait asyncio.gather(*[p[1] for p in ps])",
        [1, 2],
        1,
    ),
    "unpacked": ("a, b = t.later(n=1), t.later(n=2)\nawait asyncio.gather(a, b)", [1, 2], 2),
    "unpacked from a list": ("a, *b = [t.later(n=i) for i in range(3)]\nawait asyncio.gather(a, *b)", [0, 1, 2], 1),
    "unpacked, one of each kind": ("a, b = t.later(n=1), t.now(n=2)\n[await a, b + 1]", [1, 3], 1),
    "one or the other": (
        "await asyncio.gather(*[t.later(n=1) if i else t.later(n=2) for i in range(2)])",
        [2, 1],
        2,
    ),
    "none or one": (
        "cs = [t.later(n=i) if i else None for i in range(3)]\nawait asyncio.gather(*[c for c in cs if c])",
        [1, 2],
        1,
    ),
    "in both branches": ("if 1:\n    c = t.later(n=1)\nelse:\n    c = t.later(n=2)\nawait c", 1, 1),
    "a value, then a future in every branch": (
        """
        c = t.now(n=5)
        match c + 1:
            case 6:
                c = t.later(n=1)
            case _:
                if c > 2:
                    c = t.later(n=2)
                else:
                    c = t.later(n=3)
        await c
        """,
        1,
        1,
    ),
    "named on the way": ("x = await (c := t.later(n=1))\nx", 1, 1),
    "a helper that catches": (
        """
        async def safe(coro):
            try:
                return await coro
            except Exception as error:
                return str(error)
        await asyncio.gather(*[safe(t.later(n=i)) for i in range(3)])
        """,
        [0, 1, 2],
        3,
    ),
    "a helper by keyword": (
        "async def named(name, *, job):\n    return name, await job\n"
        "await asyncio.gather(*[named('a', job=t.later(n=i)) for i in range(2)])",
        [["a", 0], ["a", 1]],
        2,
    ),
    "a helper that gathers": (
        "async def every(*jobs):\n    return await asyncio.gather(*jobs)\nawait every(t.later(n=1), t.later(n=2))",
        [1, 2],
        2,
    ),
    "a helper that is given a list": (
        "async def every(jobs):\n    return await asyncio.gather(*jobs)\nawait every([t.later(n=i) for i in range(2)])",
        [0, 1],
        2,
    ),
    "a helper that uses the value": (
        "async def one(i):\n    r = t.now(n=i)\n    return r + 1\nawait asyncio.gather(*[one(i) for i in range(2)])",
        [1, 2],
        0,
    ),
    "a helper that awaits": (
        "async def one(i):\n    r = await t.later(n=i)\n    return r + 1\nawait asyncio.gather(one(0), one(1))",
        [1, 2],
        2,
    ),
    "a helper that is called with a function": (
        "async def retry(make):\n    return await make()\nawait retry(lambda: t.later(n=1))",
        1,
        1,
    ),
    "returned by a function": (
        "def job(i):\n    return t.later(n=i)\nawait asyncio.gather(*[job(i) for i in range(2)])",
        [0, 1],
        1,
    ),
    "returned by a lambda": ("job = lambda i: t.later(n=i)\nawait asyncio.gather(job(1), job(2))", [1, 2], 1),
    "returned as a list": (
        """
        def jobs():
            found = []
            for i in range(2):
                found.append(t.later(n=i))
            return found
        await asyncio.gather(*jobs())
        """,
        [0, 1],
        1,
    ),
    "returned with a value": (
        "def job():\n    return t.later(n=1), t.now(n=2)\nc, v = job()\n[await c, v + 1]",
        [1, 3],
        1,
    ),
    "returned by a coroutine": (
        "async def one(i):\n    return t.now(n=i)\nawait asyncio.gather(*[one(i) for i in range(2)])",
        [0, 1],
        0,
    ),
    "put into a list of another scope": (
        "cs = []\ndef add(i):\n    cs.append(t.later(n=i))\nfor i in range(2):\n    add(i)\nawait asyncio.gather(*cs)",
        [0, 1],
        2,
    ),
    "awaited in another scope": (
        """
        async def main():
            cs = [t.later(n=i) for i in range(2)]
            async def end():
                return await asyncio.gather(*cs)
            return await end()
        await main()
        """,
        [0, 1],
        2,
    ),
    "an attribute": (
        """
        class Jobs:
            def __init__(self):
                self.all = []
            def start(self, i):
                self.all.append(t.later(n=i))
            async def end(self):
                return await asyncio.gather(*self.all)
        jobs = Jobs()
        jobs.start(1)
        jobs.start(2)
        await jobs.end()
        """,
        [1, 2],
        1,
    ),
    "a method that is named like a tool": (
        "class Mine:\n    def later(self):\n        return t.now(n=2)\n[await t.later(n=1), Mine().later()]",
        [1, 2],
        1,
    ),
    "a function that is named like a tool": (
        "def later(n):\n    return t.now(n=n)\n[await t.later(n=1), later(2)]",
        [1, 2],
        1,
    ),
    "asyncio.run": (
        "async def main():\n    return await asyncio.gather(t.later(n=1), t.later(n=2))\nasyncio.run(main())",
        [1, 2],
        2,
    ),
    "asyncio.run of a call": ("asyncio.run(t.later(n=1))", 1, 1),
    "a gather that is kept": ("g = asyncio.gather(t.later(n=1), t.later(n=2))\nawait g", [1, 2], 2),
    "a gather in a gather": (
        "await asyncio.gather(asyncio.gather(t.later(n=0), t.later(n=1)), t.later(n=2))",
        [[0, 1], 2],
        3,
    ),
    "gather by its name": ("from asyncio import gather\nawait gather(t.later(n=1), t.later(n=2))", [1, 2], 2),
    "gather by another name": (
        "from asyncio import gather as side_by_side\nawait side_by_side(t.later(n=1), t.later(n=2))",
        [1, 2],
        2,
    ),
    "asyncio by another name": ("import asyncio as aio\nawait aio.gather(t.later(n=1), t.later(n=2))", [1, 2], 2),
    "a value, then a future of the same name": ("c = t.now(n=1)\nv = c + 1\nc = t.later(n=v)\nawait c", 2, 1),
    "a future, then a value of the same name": ("c = t.later(n=1)\nv = await c\nc = t.now(n=7)\n[v, c + 1]", [1, 8], 1),
    "both in turn, in a loop": (
        """
        out = []
        for i in range(2):
            c = t.later(n=i)
            out.append(await c)
            c = t.now(n=i + 10)
            out.append(c + 0)
        out
        """,
        [0, 10, 1, 11],
        1,
    ),
    "around a loop": (
        "c = t.later(n=0)\nout = []\nfor i in range(2):\n    out.append(await c)\n    c = t.later(n=i + 1)\nout",
        [0, 1],
        1,
    ),
    "a name of a comprehension": (
        "c = t.now(n=5)\ncs = [t.later(n=i) for i in range(2)]\n[[await c for c in cs], c + 1]",
        [[0, 1], 6],
        1,
    ),
    "the same name in two functions": (
        """
        def value(i):
            r = t.now(n=i)
            return r + 1
        async def awaited(i):
            r = t.later(n=i)
            return await r
        [value(1), await awaited(2)]
        """,
        [2, 2],
        1,
    ),
    "a tool that is called append": (
        "a = t.append(n=t.now(n=1))\nb = t.append(t.now(n=2))\nawait t.later(n=3)\n[a, b]",
        [1, 2],
        1,
    ),
    "a tool that is called run": ("a = t.run(t.now(n=1))\n[a, await t.later(n=2)]", [1, 2], 1),
    "beside text that is not ASCII": ("x = 'é𝄞'; [x, await t.later(n=1), t.now(n=2)]", ["é𝄞", 1, 2], 1),
}


def code_of(script):
    code = textwrap.dedent(script).strip()
    return code if "asyncio import" in code or "asyncio as" in code else f"import asyncio\n{code}"


class Tool:
    """Gives back its number, and counts how many calls of it are under way at once."""

    def __init__(self):
        self.expect(1)

    def expect(self, most):
        self.most = self.now = 0
        self.expected = most
        self.together = asyncio.Event()

    async def __call__(self, n=0):
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now >= self.expected:
            self.together.set()
        try:
            async with asyncio.timeout(5):  # however slow the machine is: they do meet
                await self.together.wait()
            await asyncio.sleep(0.005)
        finally:
            self.now -= 1
        return n


@pytest.fixture(scope="module")
def tool(scripts_for_module):
    tool = Tool()
    scripts_for_module.tool("t.later", tool, n={})
    for name in ("now", "append", "run"):
        scripts_for_module.tool(f"t.{name}", lambda n=0: n, n={})
    return tool


@each("name", SCRIPTS)
def test_the_value_and_what_runs_side_by_side(name, tool, scripts_for_module):
    code, value, most = SCRIPTS[name]
    tool.expect(most)
    assert scripts_for_module.value(code_of(code)) == value
    assert tool.most == most


@each(
    ("code", "value"),
    [
        ("x = t.now(n=1)\ny = x + 1\n[await x, y]", [1, 2]),
        ("await asyncio.gather(*[t.now(n=i) + 1 for i in range(2)])", [1, 2]),
        ("xs = [t.now(n=i) for i in range(2)]\nprint(xs)\nawait asyncio.gather(*xs)", [0, 1]),
        ("a = b = t.now(n=1)\n[await a, b + 1]", [1, 2]),
        ("a, b = pair = (t.now(n=1), t.now(n=2))\n[await a, b + 1]", [1, 3]),
        ("a = [t.now(n=1)]\nb = a\n[await asyncio.gather(*a), b[0] + 1]", [[1], 2]),
        ("xs = [c := t.now(n=1)]\n[await c, xs[0] + 1]", [1, 2]),
        ("c = t.now(n=1)\nc += t.now(n=2)\nawait c", 3),
        (
            "def f(c):\n    return c + 1\nasync def g(c):\n    return await c\n[f(t.now(n=1)), await g(t.now(n=2))]",
            [2, 2],
        ),
        ("rows = {'a': {'n': t.now(n=1)}}\n[await rows['a'], rows['a']['n']]", [{"n": 1}, 1]),
        ("await None", None),
    ],
)
def test_a_value_can_be_awaited_and_used(tool, scripts_for_module, code, value):
    assert scripts_for_module.value(code_of(code)) == value


def test_the_helper_that_is_given_a_call_catches_its_error(scripts_for_module):
    def fail(n):
        raise ToolFailure(f"no {n}")

    scripts_for_module.tool("t.fail", fail, n={})
    code = """
    import asyncio
    async def safe(job):
        try:
            return await job
        except RuntimeError as error:
            return str(error)
    await asyncio.gather(*[safe(t.fail(n=i)) for i in range(2)])
    """
    assert scripts_for_module.value(textwrap.dedent(code)) == ["no 0", "no 1"]


def test_code_that_awaits_nothing_has_no_futures():
    assert CodeScan("t.f(); [t.f() for i in xs]").futures == set()


def test_futures_are_told_by_their_bytes():
    code = "x = 'é'\nawait t.later(n='é'); t.now()"
    ((start, end),) = CodeScan(code).futures
    assert code.encode()[start:end].decode() == "t.later(n='é')"


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "a0 = t.f()\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(2000)) + "await a2000",
        "cs = []\n" + "cs.append(t.f())\n" * 2000 + "await cs[0]\n" * 2000,
        "x = []\n" + "x = x + [t.f()]\n" * 2000 + "await x[0]",
        "for i in y:\n" + "    await c\n    c = t.f()\n" * 2000,
        "x = [t.f()]\nfor i in y:\n    x = x[0]\n    x = [x]\n    await x",
        "def f(x):\n    return f(f(x))\nawait f(f)",
    ],
    ids=["names", "appended", "grown", "loop", "circle", "recursion"],
)
def test_following_is_bounded(code):
    with calls(2_000_000):  # half of what the square would be
        CodeScan(code).futures  # noqa: B018


# Any script: what it gives in the sandbox is what Python says of it


class Both(int):
    """What a reference run gets from a tool: a number that can be awaited as well."""

    def __await__(self):
        yield from ()
        return int(self)


HELPERS = """
async def safe(job):
    try:
        return await job
    except ValueError:
        return -1
def make(n):
    return t.f(n=n)
def plain(n):
    found = t.f(n=n)
    return found + 1
async def later(n):
    first = t.f(n=n)
    second = t.f(n=plain(n))
    return await first + second
"""
NUMBER, JOB, NUMBERS, JOBS, DICT, PAIRS = "number", "job", "numbers", "jobs", "dict", "pairs"
# What a statement needs, in which order, what it leaves behind, and its text: {0} is where it goes, {1}... is what it
# takes, {i} and {j} are other names, {n} is a number.
STATEMENTS = [
    ((), NUMBER, "{0} = t.f(n={n})"),
    ((NUMBER,), NUMBER, "{0} = t.f(n={1} + {n})"),
    ((NUMBER,), NUMBER, "{0} = plain({1}) + t.f(n=t.f({n}))"),
    ((), JOB, "{0} = t.f(n={n})"),
    ((NUMBER,), JOB, "{0} = t.f(n=t.f(n={1}))"),
    ((NUMBER,), JOB, "{0} = make({1})"),
    ((NUMBER,), JOB, "{0} = later({1})"),
    ((NUMBER,), JOB, "if {1} > 3:\n    {0} = t.f(n=1)\nelse:\n    {0} = make(2)"),
    ((JOB,), JOB, "{0} = safe({1})"),
    ((JOB,), JOB, "{0} = {1}"),
    ((NUMBERS,), JOB, "{0} = t.f(n=sum({1}))"),
    ((JOB,), NUMBER, "{0} = await {1}"),
    ((JOB,), NUMBER, "{0} = 1 + await safe({1})"),
    ((), JOBS, "{0} = [t.f(n={i}) for {i} in range({n})]"),
    ((NUMBERS,), JOBS, "{0} = [safe(t.f(n={i})) for {i} in {1}]"),
    ((JOB,), JOBS, "{0} = [{1}, t.f(n={n})]"),
    ((NUMBERS,), JOBS, "{0} = []\nfor {i} in {1}:\n    {0}.append(t.f(n={i} + {n}))"),
    ((), JOBS, "{0} = list(make({i}) for {i} in range({n}))"),
    ((JOBS, JOBS), JOBS, "{0} = {1} + {2}"),
    ((JOBS, JOB), JOBS, "{0} = [*{1}, {2}]"),
    ((JOBS, NUMBER), JOBS, "{0} = list({1}) if {2} > 2 else [t.f(n={i}) for {i} in (1, 2)]"),
    ((DICT,), JOBS, "{0} = list({1}.values())"),
    ((PAIRS,), JOBS, "{0} = [{j} for {i}, {j} in {1}]"),
    ((JOBS,), NUMBERS, "{0} = await asyncio.gather(*{1})"),
    ((JOBS,), NUMBERS, "{0} = await asyncio.gather(*[safe({i}) for {i} in {1}])"),
    ((JOBS,), NUMBERS, "{0} = [await {i} for {i} in {1}]"),
    ((JOBS,), NUMBERS, "{j} = []\nfor {i} in {1}:\n    {j}.append(await {i})\n{0} = {j}"),
    ((JOBS,), NUMBERS, "{0} = [{i} + await {j} for {i}, {j} in enumerate({1})]"),
    ((), DICT, "{0} = {{{i}: t.f(n={i}) for {i} in range({n})}}"),
    ((NUMBERS,), DICT, "{0} = {{}}\nfor {i} in {1}:\n    {0}[{i}] = make({i})"),
    ((JOB,), DICT, "{0} = {{'a': {1}, 'b': t.f(n={n})}}"),
    ((DICT,), NUMBERS, "{0} = [{i} and await {j} for {i}, {j} in {1}.items()]"),
    ((DICT,), NUMBERS, "{0} = await asyncio.gather(*{1}.values())"),
    ((), PAIRS, "{0} = [(t.f(n={i}), t.f(n={i} + 1)) for {i} in range({n})]"),
    ((NUMBERS, JOBS), PAIRS, "{0} = [({i}, {j}) for {i}, {j} in zip({1}, {2})]"),
    ((PAIRS,), NUMBERS, "{0} = [{i} + await {j} for {i}, {j} in {1}]"),
    ((PAIRS,), NUMBERS, "{0} = []\nfor {i}, {j} in {1}:\n    {0}.append({i} * await {j})"),
]
SHOWN = {NUMBER: "out.append({0} + 0)", NUMBERS: "out.append(sum({0}))"}


@st.composite
def bodies(draw):
    """Statements one after the other, on few names, so that they are used again for other kinds of values."""
    kinds, lines = {}, ["out = []"]
    for _ in range(draw(st.integers(3, 12))):
        held = list(kinds.values())
        possible = [one for one in STATEMENTS if all(held.count(kind) >= one[0].count(kind) for kind in one[0])]
        # Those that need something are the interesting ones.
        takes, gives, text = draw(st.sampled_from([*possible, *[one for one in possible if one[0]] * 3]))
        taken = []
        for kind in takes:
            taken.append(draw(st.sampled_from([one for one in kinds if kinds[one] == kind and one not in taken])))
        target = draw(st.sampled_from("abcd"))
        number = draw(st.integers(1, 4))
        # A list that is rebuilt while it is read would be another program.
        if target in taken and ("\n" in text or "{i}" in text):
            target = "e"
        lines.append(text.format(target, *taken, n=number, i="x", j="y"))
        for used in taken:  # a coroutine is awaited once
            if kinds.get(used) not in SHOWN:
                kinds.pop(used, None)
        kinds[target] = gives
        if gives in SHOWN and draw(st.booleans()):
            lines.append(SHOWN[gives].format(target))
    lines += [SHOWN[kind].format(name) for name, kind in kinds.items() if kind in SHOWN]
    return "\n".join(lines)


def main_of(body):
    return f"import asyncio\n{HELPERS}\nasync def main():\n{textwrap.indent(body, '    ')}\n    return out\n"


def reference(body):
    """What CPython says, where every call gives something that is a number and can be awaited, too."""

    class T:
        @staticmethod
        def f(n=0):
            return Both(n * 2 + 1)

    names = {"t": T}
    exec(main_of(body), names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a job that nobody awaits is nobody's business here
        return asyncio.run(names["main"]())


@pytest.fixture(scope="module")
def doubling(scripts_for_module):
    async def f(n=0):
        return n * 2 + 1

    scripts_for_module.tool("t.f", f, n={"type": "integer"})
    return scripts_for_module


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(bodies(), st.sampled_from(["top", "await main()", "asyncio.run(main())"]))
def test_any_script_gives_what_python_says(doubling, body, how):
    code = f"import asyncio\n{HELPERS}\n{body}\nout" if how == "top" else main_of(body) + how
    assert doubling.value(code) == reference(body)
