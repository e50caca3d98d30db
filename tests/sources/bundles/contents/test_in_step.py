"""Whatever is put and dropped in whatever order: the contents say what the last writes said."""

from helpers import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sources.bundles.contents.made import STAMP, MemoryStore, bundle, in_step, tool

from onetool.sources.bundles.contents import PathTakenError
from onetool.sources.bundles.model import Tool

PATHS = st.sampled_from([f"box/{name}.json" for name in "abcd"])
WORDS = st.sampled_from(["alpha", "Beta-Gamma", "größe", "xy 天气", ""])
NUMBERS = st.integers(1, 2)
TAGS = st.lists(st.sampled_from(["one", "two words"]), max_size=2)


class Writes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
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
            with self.store.changing() as changes:
                (changes.put_tool if isinstance(one, Tool) else changes.put_bundle)(one, path, STAMP)
        except PathTakenError:
            assert taken
        else:
            assert not taken
            self.files[path] = one

    @rule(path=PATHS)
    def put_broken(self, path):
        with self.store.changing() as changes:
            changes.put_broken(path, STAMP, "broken")
        self.files[path] = None

    @rule(path=PATHS)
    def drop(self, path):
        with self.store.changing() as changes:
            changes.drop(path)
        self.files.pop(path, None)

    @invariant()
    def says_what_was_written(self):
        assert {path for files in self.store.now.files.values() for path in files} == set(self.files)
        written = {one.id: one for one in self.files.values() if one is not None}
        bundles, tools = self.store.everything()
        assert {one.id: one for one in (*bundles, *tools)} == written
        in_step(self.store)


TestWrites = Writes.TestCase
TestWrites.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
