"""Whatever is put and dropped in whatever order: the index says what the last writes said, and its tables agree."""

from helpers import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sources.bundles.index.made import STAMP, bundle, in_step, tool

from onetool.sources.bundles.index import Index, PathTakenError
from onetool.sources.bundles.model import Tool

PATHS = st.sampled_from([f"box/{name}.json" for name in "abcd"])
WORDS = st.sampled_from(["alpha", "Beta-Gamma", "größe", "xy 天气", ""])
NUMBERS = st.integers(1, 2)
TAGS = st.lists(st.sampled_from(["one", "two words"]), max_size=2)


class Writes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.index = Index(None)
        self.files = {}

    @rule(path=PATHS, number=NUMBERS, slug=NUMBERS, name=WORDS, text=WORDS, tags=TAGS, of=NUMBERS, on=st.booleans())
    def put_tool(self, path, number, slug, name, text, tags, of, on):
        one = tool(number, f"s{slug}", of, display_name=name, description=text, tags=tuple(tags), is_enabled=on)
        others = [thing for other, thing in self.files.items() if other != path and isinstance(thing, Tool)]
        taken = any(one.id == other.id or (of, one.slug) == (int(other.bundle_id[-1]), other.slug) for other in others)
        self._put(path, one, taken)

    @rule(path=PATHS, number=NUMBERS, name=WORDS, on=st.booleans())
    def put_bundle(self, path, number, name, on):
        one = bundle(number, display_name=name, is_enabled=on)
        taken = any(getattr(thing, "id", None) == one.id for other, thing in self.files.items() if other != path)
        self._put(path, one, taken)

    def _put(self, path, one, taken):
        try:
            with self.index.changing() as changes:
                (changes.put_tool if isinstance(one, Tool) else changes.put_bundle)(one, path, STAMP)
        except PathTakenError:
            assert taken
        else:
            assert not taken
            self.files[path] = one

    @rule(path=PATHS)
    def put_broken(self, path):
        with self.index.changing() as changes:
            changes.put_broken(path, STAMP, "broken")
        self.files[path] = None

    @rule(path=PATHS)
    def drop(self, path):
        with self.index.changing() as changes:
            assert changes.drop(path) == (path in self.files)
        self.files.pop(path, None)

    @rule(there=st.booleans(), name=WORDS, on=st.booleans())
    def built_in(self, there, name, on):
        """One pack, or none; its ids are nobody else's."""
        packs = [(bundle(9, display_name=name), [tool(9, of=9, display_name=name)])] if there else []
        with self.index.changing() as changes:
            changes.built_in(packs, {tool(9).id: on})

    @invariant()
    def says_what_was_written(self):
        assert set(self.index.stamps()) == set(self.files)
        written = {one.id: one for one in self.files.values() if one is not None}
        bundles, tools = self.index.everything()
        assert {one.id: one for one in (*bundles, *tools)} == written
        in_step(self.index)

    def teardown(self):
        self.index.close()


TestWrites = Writes.TestCase
TestWrites.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
