"""Messages by topic: which file gets them, what they look like there, and that none is lost."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from onetool.core.errors import BadArguments, ToolFailure
from onetool.services.file_access import open_folder
from onetool.services.topics import MAX_MESSAGE_BYTES, MAX_TOPIC_LENGTH, Topics, document

# Every kind of character that YAML or its readers treat in their own way.
ODD = "a -.:#\t\n\r\"'|>%&*!@`{}[],?\\\0\x1b\x7f\x85\x9f\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800\udfff\ud83d\ude00é漢😀"
TEXTS = st.text(st.sampled_from(ODD)) | st.text(st.characters()) | st.text(st.sampled_from("a \n-.\t#"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def topics(folder: Path, *entries: tuple[str, str], private: tuple[str, ...] = ()) -> Topics:
    return Topics([(pattern, folder / file) for pattern, file in entries], [str(folder)], private)


def documents(file: Path) -> list[dict[str, str]]:
    return list(yaml.safe_load_all(file.read_bytes()))


def messages(file: Path) -> list[str]:
    return [document["message"] for document in documents(file)]


def refused(topics: Topics, topic: str = "notes", message: str = "x") -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        topics.publish(topic, message)
    return caught.value


# Which file


def test_a_message_goes_to_the_file_of_its_topic(folder: Path) -> None:
    before = datetime.now(UTC)
    answer = topics(folder, ("notes*", "notes.yaml")).publish("notes", "Remember to review PR #123")
    assert answer == "OK: notes -> notes.yaml"
    (kept,) = documents(folder / "notes.yaml")
    assert list(kept) == ["time", "topic", "message"]
    assert (kept["topic"], kept["message"]) == ("notes", "Remember to review PR #123")
    assert kept["time"].endswith("Z")
    written = datetime.fromisoformat(kept["time"])
    assert before.replace(microsecond=0) <= written <= datetime.now(UTC)


def test_no_matching_topic(folder: Path) -> None:
    answer = topics(folder, ("notes*", "notes.yaml")).publish("unknown:topic", "test")
    assert answer == "SKIP: no matching topic"
    assert topics(folder).publish("notes", "test") == "SKIP: no matching topic"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("topic", "file"),
    [
        ("notes", "notes.yaml"),
        ("notes:today", "notes.yaml"),
        ("Notes", "rest.yaml"),
        ("my notes", "rest.yaml"),
        ("bug1", "bugs.yaml"),
        ("bug12", "rest.yaml"),
        ("bugx", "rest.yaml"),
        ("a.b", "dots.yaml"),
        ("axb", "rest.yaml"),
        ("", "rest.yaml"),
        ("two\nlines", "rest.yaml"),
    ],
)
def test_the_first_pattern_that_matches_counts(folder: Path, topic: str, file: str) -> None:
    several = topics(
        folder, ("notes*", "notes.yaml"), ("bug[0-9]", "bugs.yaml"), ("a.b", "dots.yaml"), ("*", "rest.yaml")
    )
    assert several.publish(topic, "x") == f"OK: {topic} -> {file}"
    assert [path.name for path in folder.iterdir()] == [file]
    assert documents(folder / file)[0]["topic"] == topic


def test_folders_below_the_root_are_made(folder: Path) -> None:
    some = topics(folder, ("*", "deep/down/notes.yaml"))
    some.publish("a", "one")
    some.publish("a", "two")
    assert messages(folder / "deep" / "down" / "notes.yaml") == ["one", "two"]


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems know only UTF-8 names")
def test_a_file_with_a_name_that_is_not_utf8(folder: Path) -> None:
    assert topics(folder, ("*", os.fsdecode(b"\xff.yaml"))).publish("a", "x") == "OK: a -> \\xff.yaml"
    assert os.listdir(bytes(folder)) == [b"\xff.yaml"]


# What it looks like


def test_several_lines_stand_as_they_are(folder: Path) -> None:
    text = "First:\n---\n  indented\n\n...\nlast"
    topics(folder, ("*", "n.yaml")).publish("a", text)
    assert (
        (folder / "n.yaml")
        .read_text()
        .endswith('topic: "a"\nmessage: |-\n  First:\n  ---\n    indented\n\n  ...\n  last\n')
    )
    assert messages(folder / "n.yaml") == [text]


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
@example([("\ud800", "\ud83d\ude00"), ("😀", "😀"), ("a", "a\n---\n---\nb: c\n")])
@example([("a", "line\n   \n"), ("a", "line\n  "), ("a", "\n"), ("a", ""), ("no", "null")])
@example([("%YAML 1.1", "... \n---"), ("---", "\ufeff"), ("", "#\n#")])
def test_any_text_reads_back_the_same(texts: list[tuple[str, str]]) -> None:
    data = b"".join(document(topic, message) for topic, message in texts)
    read = [(kept["topic"], kept["message"]) for kept in yaml.safe_load_all(data)]
    assert read == texts


@given(st.text(st.sampled_from([character for character in ODD if not "\ud800" <= character <= "\udfff"])))
def test_other_readers_agree(text: str) -> None:
    """libyaml knows no half of a surrogate pair; all else it reads as we do."""
    if not yaml.__with_libyaml__:
        pytest.skip("no libyaml here")
    data = document("a", text) + document("b", text)
    assert list(yaml.load_all(data, Loader=yaml.CSafeLoader)) == list(yaml.safe_load_all(data))


def test_a_file_that_ends_in_the_middle_of_a_line_is_gone_on_with(folder: Path) -> None:
    (folder / "n.yaml").write_text("time: today\ntopic: a\nmessage: by hand")
    topics(folder, ("*", "n.yaml")).publish("a", "x")
    assert messages(folder / "n.yaml") == ["by hand", "x"]


# Limits


def test_limits(folder: Path) -> None:
    some = topics(folder, ("*", "n.yaml"))
    some.publish("t" * MAX_TOPIC_LENGTH, "é" * (MAX_MESSAGE_BYTES // 2))
    topic = refused(some, "t" * 201)
    assert str(topic) == "The topic has 201 characters; at most 200 are allowed."
    message = refused(some, "a", "é" * (MAX_MESSAGE_BYTES // 2) + "x")
    assert str(message) == "The message has 65,537 bytes; at most 65,536 (64 KB) are allowed."
    assert isinstance(topic, BadArguments)
    assert isinstance(message, BadArguments)
    assert len(documents(folder / "n.yaml")) == 1


# Where it may not be


@pytest.mark.parametrize("file", ["../notes.yaml", "/etc/notes.yaml", "out/notes.yaml", "deep/../../notes.yaml"])
def test_files_outside_of_the_folder(folder: Path, file: str) -> None:
    (folder / "out").symlink_to("..")
    failure = refused(topics(folder, ("*", file)))
    assert failure.reason == "denied"
    assert str(folder) in str(failure)
    assert "`topics`" in failure.hints[0]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["app"]
    assert sorted(path.name for path in folder.iterdir()) == ["out"]


def test_links_and_private_files(folder: Path) -> None:
    (folder / "outside").symlink_to("../secret")
    (folder / "secrets.yaml").write_text("KEY: value\n")
    some = topics(folder, ("l*", "outside"), ("*", "secrets.yaml"), private=(str(folder / "secrets.yaml"),))
    assert refused(some, "link").reason == "is_a_link"
    assert refused(some, "notes").reason == "private"
    assert (folder / "secrets.yaml").read_text() == "KEY: value\n"


@pytest.mark.attack("state")
@pytest.mark.parametrize(
    "text",
    [
        "a: b\n",
        "# a comment\n",
        "\ttab\n",
        "topic: t\nmessage: m\n",
        "time: t\ntopic: t\nmessage: m\nmore: x\n",
        "time: t\ntopic: t\nmessage: m\n- a\n",
        "---\n",
        "x",
        "\0",
        "time: t\ntopic: t\nmessage: m\n" * 100_000 + "a: b\n",
    ],
)
def test_a_file_that_holds_something_else_stays_as_it_is(folder: Path, text: str) -> None:
    (folder / "n.yaml").write_text(text)
    failure = refused(topics(folder, ("*", "n.yaml")))
    assert failure.reason == "other_content"
    assert (folder / "n.yaml").read_text() == text


@pytest.mark.parametrize("size", [0, 1, 5_000, MAX_MESSAGE_BYTES])
def test_a_file_of_many_messages_is_gone_on_with(folder: Path, size: int) -> None:
    data = document("a", "x" * size) + document("b", "two\n\nlines\n") + document("c", "\x01\n" * (size // 2))
    (folder / "n.yaml").write_bytes(data * (3 * 2**20 // len(data) + 1))
    some = topics(folder, ("*", "n.yaml"))
    some.publish("a", "one")
    some.publish("a", "two")
    topics(folder, ("*", "n.yaml")).publish("a", "of another process")
    some.publish("a", "three")
    assert (folder / "n.yaml").read_text().count("message: ") % 3 == 1
    (folder / "n.yaml").write_bytes(document("a", "begun anew"))
    some.publish("a", "four")
    assert messages(folder / "n.yaml") == ["begun anew", "four"]


def test_no_folder_allowed_or_there(folder: Path) -> None:
    assert refused(Topics([("*", folder / "n.yaml")], [])).reason == "denied"
    gone = folder / "gone"
    failure = refused(Topics([("*", gone / "n.yaml")], [str(gone)]))
    assert failure.reason == "root_missing"
    assert str(gone) in str(failure)


def test_a_full_disk_is_said_and_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = topics(folder, ("*", "n.yaml"))
    some.publish("a", "before")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(open_folder.os, "write", full)
        assert "No space left on device" in str(refused(some))
    some.publish("a", "after")
    assert messages(folder / "n.yaml") == ["before", "after"]


# Many at once

WRITER = """
import sys
from pathlib import Path
from onetool.services.topics import Topics
folder, number, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
topics = Topics([("*", Path(folder, "new", "notes.yaml"))], [folder])
sys.stdin.readline()
for turn in range(rounds):
    message = f"{number}:{turn}\\n---\\n" + "x" * (turn * 37 % 5000)
    assert topics.publish(f"topic{number}", message).startswith("OK: ")
"""


@pytest.mark.long
def test_writers_of_several_processes(folder: Path) -> None:
    """All begin at once, also with making the folder and the file."""
    count, rounds = 4, 100
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(number), str(rounds)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(b"\n")
            writer.stdin.flush()
    finally:
        errors = [writer.communicate(timeout=120)[1] for writer in writers]
    assert errors == [b""] * count
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    kept = list(yaml.load_all((folder / "new" / "notes.yaml").read_bytes(), Loader=loader))
    expected = {
        (f"topic{number}", f"{number}:{turn}\n---\n" + "x" * (turn * 37 % 5000))
        for number in range(count)
        for turn in range(rounds)
    }
    assert len(kept) == count * rounds
    assert {(document["topic"], document["message"]) for document in kept} == expected
