"""Names of bundles' tools, followed change by change: they are those of a whole load, and the rest is not touched."""

from types import MappingProxyType

from helpers import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sources.bundles.contents.made import MemoryStore, at, bundle, bundle_id, drop, put, tool, tool_id

from onetool.core.spec import ToolSpec
from onetool.sources.bundles.named import FollowedTools

NUMBERS = st.integers(1, 3)
NO_FUNCTION = "calc.gone"


class Loader:
    """Follows an store. `functions` are those that there are."""

    def __init__(self, store: MemoryStore, functions: dict[str, object]) -> None:
        self.store, self.functions = store, functions
        self.followed = FollowedTools(self._make, self._why_not, self._basis)

    def _make(self, row, name, off):
        return ToolSpec(name=name, description=row.tool().description, enabled=off is None, off=off, kept_as=row.id)

    def _why_not(self, function):
        return None if function is None or self.functions.get(function) else f"{function} is gone"

    def _basis(self, names):
        return None, {name: self.functions.get(name) for name in names}

    def load(self, taken=MappingProxyType({})):
        return self.followed.follow(self.store.now, taken)


def told(named):
    """All that there is to know of it."""
    return (
        {
            pack: [
                (own, one.name, one.versions()[0].id, {row.id for row in one.versions()}, one.off)
                for own, one in tools.items()
            ]
            for pack, tools in named.packs.items()
        },
        [mistake.message for mistake in named.shadowed.values()],
        {name: None if (spec := named.get(name)) is None else (spec.kept_as, spec.off) for name in VERSIONS},
    )


VERSIONS = [f"{pack}.{own}@{version}" for pack in ("one", "two") for own in ("a", "b_c") for version in ("1", "2")]


class Changes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.functions: dict[str, object] = {"calc.add": object()}
        self.loader = Loader(self.store, self.functions)
        self.taken: dict[str, str] = {}
        self.ids: dict[tuple[int, str, str], int] = {}

    @rule(number=NUMBERS, slug=st.sampled_from(["one", "two"]), on=st.booleans(), deleted=st.booleans())
    def put_bundle(self, number, slug, on, deleted):
        put(self.store, bundle(number, slug, is_enabled=on, soft_deleted_at=at(1) if deleted else None))

    @rule(number=NUMBERS)
    def drop_bundle(self, number):
        drop(self.store, bundle(number))

    @rule(
        of=NUMBERS,
        slug=st.sampled_from(["a", "b-c"]),
        version=st.sampled_from(["1", "2"]),
        text=st.sampled_from(["x", "y"]),
        on=st.booleans(),
        function=st.sampled_from([None, "calc.add", NO_FUNCTION]),
    )
    def put_tool(self, of, slug, version, text, on, function):
        number = self.ids.setdefault((of, slug, version), len(self.ids) + 1)
        impl = {} if function is None else {"type": "python", "python_impl": {"func": function}, "script_impl": None}
        more = {"modified_at": at(number + len(text) * 7), "description": text, "is_enabled": on, **impl}
        put(self.store, tool(number, slug, of, version=version, **more))

    @rule(of=NUMBERS, slug=st.sampled_from(["a", "b-c"]), version=st.sampled_from(["1", "2"]))
    def drop_tool(self, of, slug, version):
        drop(self.store, tool(1, slug, of, version=version))

    @rule(there=st.booleans())
    def switch_function(self, there):
        self.functions["calc.add"] = object() if there else None

    @rule(taken=st.sampled_from([{}, {"one": "a pack"}]))
    def take_name(self, taken):
        self.taken = taken

    @invariant()
    def is_as_a_whole_load(self):
        assert told(self.loader.load(self.taken)) == told(Loader(self.store, self.functions).load(self.taken))


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)


def test_a_change_touches_its_pack_alone():
    store = MemoryStore()
    loader = Loader(store, {})
    put(store, bundle(1, "one"), bundle(2, "two"), tool(1, "a", 1), tool(2, "b", 1), tool(3, "c", 2))
    before = loader.load()
    spec = before.packs["one"]["b"].spec()
    put(store, tool(1, "a", 1, description="another one"), tool(4, "d", 1))
    after = loader.load()
    assert after.packs["two"] is before.packs["two"]
    assert list(before.packs["one"]) == ["a", "b"]
    assert list(after.packs["one"]) == ["a", "b", "d"]
    assert after.packs["one"]["b"] is before.packs["one"]["b"]
    assert after.packs["one"]["b"].spec() is spec
    assert before.packs["one"]["a"].spec().description != after.packs["one"]["a"].spec().description == "another one"
    assert loader.load() is after
    assert (before.find("one.a").kept_as, tool_id(1)) == (tool_id(1), after.find("one.a").kept_as)
    assert after.name_of(bundle(1, "one"), tool(2, "b", 1)) == "one.b"
    assert after.name_of(bundle(3, "two"), tool(9, "c", 3)) == f"{bundle_id(3)}/c@1"


def test_a_newer_version_puts_a_tool_where_a_whole_load_has_it():
    store = MemoryStore()
    loader = Loader(store, {})
    put(store, bundle(1, "one"), tool(1, "a", 1), tool(2, "b", 1))
    assert list(loader.load().packs["one"]) == ["a", "b"]
    put(store, tool(9, "a", 1, version="2"))
    assert list(loader.load().packs["one"]) == list(Loader(store, {}).load().packs["one"]) == ["b", "a"]
    drop(store, tool(9, "a", 1, version="2"))
    assert list(loader.load().packs["one"]) == list(Loader(store, {}).load().packs["one"]) == ["a", "b"]


def test_the_digest_of_a_tool_tells_what_its_function_says():
    store = MemoryStore()
    impl = {"type": "python", "python_impl": {"func": "calc.add"}, "script_impl": None}
    put(store, bundle(1, "one"), tool(1, "a", 1, **impl), tool(2, "b", 1))

    def digests(description):
        add = ToolSpec(name="calc.add", description=description, input_schema={"properties": {"x": {"title": "X"}}})
        packs = Loader(store, {"calc.add": add}).load().packs
        return packs["one"]["a"].digest, packs["one"]["b"].digest

    assert digests("adds") == digests("adds")
    assert digests("adds")[0] != digests("sums up")[0]
    assert digests("adds")[1] == digests("sums up")[1]
