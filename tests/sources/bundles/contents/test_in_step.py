"""Whatever is put and dropped in whatever order: the contents say what one says that reads all files at once."""

from helpers import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sources.bundles.contents.made import MemoryStore, bundle, drop, in_step, row_of, tool

from onetool.sources.bundles.store.contents import FileRow

FOLDERS = st.sampled_from(["box", "copy", "box-000000000001"])
NAMES = st.sampled_from(["a", "b", "s1@1"])
WORDS = st.sampled_from(["alpha", "Beta-Gamma", "größe", "xy 天气", ""])
NUMBERS = st.integers(1, 2)
TAGS = st.lists(st.sampled_from(["one", "two words"]), max_size=2, unique=True)


class Writes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.files = {}

    def _put(self, row, thing=None):
        self.store.follow(row)
        self.files[row.path] = thing

    @rule(folder=FOLDERS, file=NAMES, number=NUMBERS, slug=NUMBERS, name=WORDS, text=WORDS, tags=TAGS, on=st.booleans())
    def put_tool(self, folder, file, number, slug, name, text, tags, on):
        one = tool(number, f"s{slug}", display_name=name, description=text, tags=tuple(tags), is_enabled=on)
        self._put(row_of(one, f"{folder}/tools/{file}.json"), one)

    @rule(folder=FOLDERS, number=NUMBERS, name=WORDS, on=st.booleans())
    def put_bundle(self, folder, number, name, on):
        one = bundle(number, display_name=name, is_enabled=on)
        self._put(row_of(one, f"{folder}/bundle.json"), one)

    @rule(folder=FOLDERS, file=NAMES)
    def put_broken(self, folder, file):
        self._put(FileRow(f"{folder}/tools/{file}.json", b"", 1, "broken"))

    @rule(folder=FOLDERS)
    def put_broken_bundle(self, folder):
        self._put(FileRow(f"{folder}/bundle.json", b"", 1, "broken"))

    @rule(folder=FOLDERS, file=NAMES)
    def drop(self, folder, file):
        drop(self.store, f"{folder}/tools/{file}.json")
        self.files.pop(f"{folder}/tools/{file}.json", None)

    @rule(folder=FOLDERS)
    def drop_bundle(self, folder):
        drop(self.store, f"{folder}/bundle.json")
        self.files.pop(f"{folder}/bundle.json", None)

    @invariant()
    def says_what_was_written(self):
        now = self.store.now
        assert {path for files in now.files.values() for path in files} == set(self.files)
        used = {f"{kept.folder}/bundle.json": kept.bundle for kept in now.bundles.values()}
        used |= {row.path: row.tool() for row in now.by_id.values()}
        assert used.keys() | now.refused.keys() >= {path for path, thing in self.files.items() if thing is not None}
        assert not used.keys() & now.refused.keys()
        for path, thing in used.items():
            assert (thing.id, thing.display_name) == (self.files[path].id, self.files[path].display_name)
        in_step(self.store)


TestWrites = Writes.TestCase
TestWrites.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
