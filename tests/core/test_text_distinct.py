"""Names that are kept: short ones as they are, others cut and with a hash, which finds them again."""

import pytest

from onetool.core.text import MAX_DISTINCT, distinct_name, wanted_name


def test_a_short_name_stays():
    assert distinct_name("ci") == wanted_name("ci") == "ci"


@pytest.mark.parametrize("start", ["x" * 500, "bell\a", "\ud800"])
def test_others_are_distinct_and_found_by_both_forms(start):
    names = [f"{start}{end}" for end in "ab"]
    kept = [distinct_name(name) for name in names]
    assert kept[0] != kept[1]
    assert all(one.isprintable() and len(one) <= MAX_DISTINCT + 33 for one in kept)
    assert [wanted_name(name) for name in names] == [wanted_name(one) for one in kept] == kept


def test_a_name_in_the_form_of_a_kept_one_is_kept_as_another():
    kept = distinct_name("x" * 500)
    assert distinct_name(kept) != kept
