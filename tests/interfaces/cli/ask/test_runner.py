"""What is asked, and what is attached to it."""

import base64
import io
import os
import sys

import click
import pytest

from onetool.interfaces.cli import inputs
from onetool.interfaces.cli.ask import runner as asked
from onetool.interfaces.cli.ask.runner import MAX_PICTURE_BYTES, MAX_TEXT_BYTES, read_question

IS_PIPED = inputs.is_piped
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture(autouse=True)
def nothing_piped(monkeypatch):
    monkeypatch.setattr(inputs, "is_piped", lambda: False)


@pytest.fixture
def piped(monkeypatch):
    """Has this come on standard input."""

    def comes(data):
        monkeypatch.setattr(inputs, "is_piped", lambda: True)
        monkeypatch.setattr(inputs, "has_input", lambda: data is not None)
        monkeypatch.setattr(inputs, "read", lambda most: data[: most + 1])

    return comes


def refused(*args):
    with pytest.raises(click.UsageError) as error:
        read_question(*args)
    return error.value.message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0 jpeg", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_pictures_are_known_by_their_first_bytes(tmp_path, data, kind):
    (tmp_path / "picture.txt").write_bytes(data)
    (file,) = read_question(["What is it?"], [str(tmp_path / "picture.txt")]).files
    assert (file.kind, file.text) == (kind, None)
    assert base64.b64decode(file.data) == data


def test_texts_are_read_as_they_are(tmp_path):
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfprint('\xc3\xa4')\r\n")
    (tmp_path / "empty").write_bytes(b"")
    first, second = read_question(["q"], [str(tmp_path / "a.py"), str(tmp_path / "empty")]).files
    assert (first.name, first.kind, first.text) == (str(tmp_path / "a.py"), "text/plain", "print('ä')\r\n")
    assert second.text == ""


@pytest.mark.parametrize("data", [b"%PDF-1.7\n\xff\xfe\x00", b"\x7fELF" + bytes(2**21), b"caf\xe9", b"a\x00b"])
def test_what_is_neither_is_refused(tmp_path, data):
    (tmp_path / "x.bin").write_bytes(data)
    assert "x.bin is neither text in UTF-8 nor a picture (PNG, JPEG, GIF, WebP)" in refused(
        ["q"], [str(tmp_path / "x.bin")]
    )


def test_sizes_are_limited(tmp_path):
    large, small = tmp_path / "large.txt", tmp_path / "small.txt"
    large.write_bytes(b"a" * (MAX_TEXT_BYTES + 1))
    assert "large.txt is larger than 1 MiB of text" in refused(["q"], [str(large)])
    small.write_bytes(b"a" * (MAX_TEXT_BYTES // 2 + 1))
    assert "with all files, is larger than 1 MiB" in refused(["q"], [str(small), str(small)])
    large.write_bytes(PNG + bytes(MAX_PICTURE_BYTES))
    assert "larger than 5 MB, the maximum for a picture" in refused(["q"], [str(large)])
    large.write_bytes(PNG.ljust(MAX_PICTURE_BYTES, b"\0"))
    assert read_question(["q"], [str(large)]).files[0].kind == "image/png"


def test_files_that_cannot_be_read(tmp_path):
    assert "no-such-file: No such file" in refused(["q"], ["no-such-file"])
    assert "Is a directory" in refused(["q"], [str(tmp_path)])
    assert "can't read" in refused(["q"], ["a\0b"])


@pytest.mark.parametrize("name", ["fifo", "/dev/zero", "/dev/null"])
def test_what_is_no_regular_file_is_neither_waited_for_nor_read(tmp_path, name):
    os.mkfifo(tmp_path / "fifo")
    told = refused(["q"], [str(tmp_path / name)])  # an absolute name stays what it is
    assert "not a regular file" in told
    assert "-f -" in told


def test_the_question_comes_from_standard_input(piped):
    piped(b"Was ist das?\n")
    assert read_question(["-"], []) == ("Was ist das?\n", ())
    assert read_question([], []) == ("Was ist das?\n", ())
    piped(b" \n")
    assert "The question is empty" in refused(["-"], [])
    piped(PNG)
    assert "standard input is neither text" in refused([], [])


def test_what_is_piped_beside_a_question_is_attached(piped):
    piped(b"+ a line\n")
    (file,) = read_question(["Review this."], []).files
    assert (file.name, file.text) == ("stdin", "+ a line\n")
    assert read_question(["Review this."], ["-"]).files == (file,)
    piped(PNG)
    assert read_question(["What is it?"], []).files[0].kind == "image/png"
    piped(b"")
    assert read_question(["q"], []).files == ()


def test_nothing_that_comes_is_left_out_and_told(piped, capsys):
    piped(None)
    assert read_question(["q"], []) == ("q", ())
    assert capsys.readouterr().err.strip() == asked.NOTHING_CAME
    assert "Give the question" in refused([], [])


def test_who_is_to_type_it_is_told(piped, monkeypatch, capsys):
    piped(b"Why?")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    read_question(["-"], [])
    assert capsys.readouterr().err == ""
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    read_question(["-"], [])
    read_question(["What is it?"], ["-"])
    first, second = capsys.readouterr().err.splitlines()
    assert first == "Type the question; Ctrl-D ends it."
    assert second == "Type the attachment; Ctrl-D ends it."


def test_wrong_usage_is_explained(piped):
    assert refused(["what", "is", "it?"], []) == 'Put the question into quotes: onetool ask "what is it?"'
    assert "Give the question" in refused([], [])
    assert "The question is empty" in refused([""], [])
    assert "not UTF-8" in refused(["\udcff"], [])
    for words, names in ((["-"], ["-"]), ([], ["-"]), (["q"], ["-", "-"])):
        assert "Standard input can be read once" in refused(words, names)


# Standard input itself


@pytest.fixture
def what_comes(monkeypatch):
    """What is read of standard input, if that is this."""
    monkeypatch.setattr(inputs, "is_piped", IS_PIPED)
    monkeypatch.setattr(inputs, "INPUT_TIMEOUT", 0.1)

    def come(file):
        with open(file) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            return inputs.read(10) if inputs.is_piped() and inputs.has_input() else None

    return come


def test_an_open_pipe_that_nobody_writes_to_is_not_waited_for(what_comes):
    theirs, ours = os.pipe()
    try:
        assert what_comes(theirs) is None
    finally:
        os.close(ours)


def test_pipes_and_files_are_read_and_devices_are_not(what_comes, tmp_path):
    theirs, ours = os.pipe()
    os.write(ours, b"0123456789abc")
    os.close(ours)
    assert what_comes(theirs) == b"0123456789a"
    assert what_comes(os.devnull) is None
    (tmp_path / "file").write_bytes(b"x")
    assert what_comes(tmp_path / "file") == b"x"
    assert not IS_PIPED()  # it is closed
