"""Tokens, guessed without a vocabulary."""

from helpers import each

from onetool.core.text import count_tokens, cut_to_tokens


@each(
    ("text", "count"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("茶", 1), ("茶abcd", 2), ("{[(,.;:)]}", 7)],
)
def test_four_letters_or_one_other_are_about_one_and_signs_are_more(text, count):
    assert count_tokens(text) == count


@each("text", ["", "short", "word " * 100, "茶" * 100, "茶 and tea " * 30, "x" * 1_000])
@each("most", [2, 10, 50])
def test_what_is_cut_fits_and_says_that_it_was_cut(text, most):
    cut = cut_to_tokens(text, most)
    assert count_tokens(cut) <= most
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
    assert (cut == text) == (count_tokens(text) <= most)
