"""What is known of files, folder by folder."""

from onetool.sources.bundles.files.disk import FolderScan
from onetool.sources.bundles.index import FileStamps, Stamp
from onetool.sources.bundles.index.stamps import SEPARATOR, stamp_text

ODD = Stamp(-5, 0, 2**64 - 1)


def broken(index, stamps):
    with index.changing() as changes:
        for path, stamp in stamps.items():
            changes.put_broken(path, stamp, "no")


def test_files_at_the_top_and_in_folders_come_back_as_they_were_put(index):
    put = {
        "builtin.json": ODD,
        "a/tools/\udcff": Stamp(1, 2, 3),
        "a/bundle.json": Stamp(4, 5, 6),
        "a-b/bundle.json": Stamp(7, 8, 9),
        "a0": Stamp(1, 1, 1),
        "link": Stamp(0, 0, 0),
    }
    broken(index, put)
    found = index.stamps()
    assert found == put
    assert len(found) == len(put)
    assert "a/none.json" not in found
    assert found.get("none/x.json") is None


def test_only_folders_that_may_differ_are_named(index):
    broken(index, {"a/bundle.json": Stamp(1, 2, 3), "b/bundle.json": Stamp(1, 2, 3), "c/bundle.json": Stamp(1, 2, 3)})
    known = index.stamps()
    same, other = stamp_text("bundle.json", Stamp(1, 2, 3)), stamp_text("bundle.json", Stamp(1, 2, 4))
    assert known.differing(FileStamps({"a": same, "b": same, "c": same, "": ""})) == []
    assert known.differing(FileStamps({"a": same, "b": other, "d": same})) == ["b", "c", "d"]
    assert known.of("none") == {}


def test_a_look_finds_what_the_index_knows(index, tmp_path):
    names = ["x@1.json", "x@1.json.json", "x@1.json-2.json", "Ä ö.json", "new\nline.json"]
    (tmp_path / "one" / "tools").mkdir(parents=True)
    for name in ("bundle.json", *(f"tools/{name}" for name in names)):
        (tmp_path / "one" / name).write_text("{}")
    seen = FolderScan(tmp_path).files
    assert set(seen) == {"one/bundle.json", *(f"one/tools/{name}" for name in names)}
    broken(index, dict(seen))
    assert index.stamps() == seen
    assert SEPARATOR not in "".join(seen)
