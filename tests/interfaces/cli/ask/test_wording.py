"""Arguments that somebody decides by: nothing in them can pass for ours, and nothing is left out in silence."""

from rich.cells import cell_len

from onetool.interfaces.cli.ask.wording import argument_lines


def test_arguments_that_are_long():
    """None can pass for a line of ours, however wide its signs are."""
    pad = "The model wants to call time.now, which may change something:".ljust(80)
    for text in (" " * 2450 + pad * 2, "東京" * 3000, "\n" * 500 + pad, "é\u0301" * 5000, f"a\n{'b' * 3000}\nc"):
        lines, is_whole = argument_lines({"text": text, "n": 1}, 80)
        assert not is_whole
        assert (lines[0], lines[-1], len(lines)) == ("  text:", "  n: 1", 21)
        assert sum(line.startswith("    … ") for line in lines) == 1
        everything = argument_lines({"text": text}, 80, whole=True)
        assert everything.is_whole
        for line in lines[1:-1] + everything.lines[1:]:
            assert line.startswith(("    | ", "    … "))
            assert cell_len(line) < 80
    assert "".join(line[6:] for line in everything.lines[1:]) == text.replace("\n", "")


def test_what_is_left_out_is_counted():
    (_, *lines), _ = argument_lines({"text": "0123456789" * 1000}, 80)
    shown = sum(len(line) - 6 for line in lines[:12] + lines[13:]) - 2  # quotes
    assert lines[12] == f"    … {10_000 - shown:,} characters of 10,002 are not shown here"
    lines, _ = argument_lines({"text": "line\n" * 1000}, 80)
    assert lines[-7] == f"    … {5 * (1000 - 12 - 6):,} characters of 5,000 are not shown here"
    assert lines[-6:] == ["    | line"] * 6


def test_arguments_with_long_names_or_very_many_of_them():
    lines, is_whole = argument_lines({"The model wants\nto call time.now " * 9: 1}, 40)
    assert is_whole
    assert lines[:2] == ["  (argument with a long name):", "    | The model wants to call time.now "]
    assert all(line.startswith("    | ") and len(line) < 40 for line in lines[1:])
    lines, is_whole = argument_lines({f"a{place}": place for place in range(100_000)}, 80)
    assert (len(lines), is_whole) == (61, False)
    assert lines[-1] == "  … and 99,940 further arguments, not shown here"
    assert argument_lines({}, 80) == (["  (no arguments)"], True)
    assert argument_lines({"a": "x" * 500}, 1).lines[1] == '    | "' + "x" * 13


def test_what_cannot_be_seen_is_written_as_what_it_is():
    lines, _ = argument_lines({"a\u202eb": "x\u200by\u2066z\x1b[2J", "n": "one\n\u3164\U000e0041\ufeff\r"}, 80)
    assert lines == [
        '  a\\u202eb: "x\\u200by\\u2066z\\u001b[2J"',
        "  n:",
        "    | one",
        "    | \\u3164\\U000e0041\\ufeff\\x0d",
    ]
    for text in ("\u202e" * 5000, "\n".join(["\u200b" * 50] * 30)):
        lines, _ = argument_lines({"text": text}, 40)
        assert all(line.isascii() or "…" in line for line in lines)
        assert all(len(line) < 80 for line in lines)
        assert all(len(line) < 40 for line in lines if line.startswith("    | "))
    whole = argument_lines({"text": "\u202e" * 500 + "\n"}, 40, whole=True).lines
    assert "".join(line[6:] for line in whole[1:]) == "\\u202e" * 500


def test_words_of_several_alphabets_are_pointed_out():
    lines, _ = argument_lines({"url": "https://p\u0430ypal.com/\u043c\u043e\u0441\u043a", "ok": "東京 Tokyo"}, 80)
    assert lines[1] == "  ! letters of several alphabets in p\\u0430ypal"
    assert len(lines) == 3
    assert len(argument_lines({"a": "p\u0430 q\u043e " * 1000 + "x"}, 80).lines) < 30
