"""Matrices in one test: every case is checked, and every failure is told."""

import pytest
from helpers import each

seen = []


@each("number", [1, 2, 3])
@each(("text", "base"), [("a", 10), ("b", 16)])
def fails_often(number, text, base):
    seen.append((number, text))
    with pytest.raises(ValueError, match=text):
        int(text, base)


def test_every_case_is_checked_and_every_failure_told():
    seen.clear()
    with pytest.raises(BaseExceptionGroup, match="3 of 3 cases failed") as caught:
        fails_often()
    assert seen == [(number, text) for number in (1, 2, 3) for text in "ab"]
    assert [error.__notes__ for error in caught.value.exceptions] == [[f"The case: ({n},)"] for n in (1, 2, 3)]
    ((failed,), *_) = (group.exceptions for group in caught.value.exceptions)
    assert failed.__notes__ == ["The case: ('b', 16)"]


def test_a_matrix_without_cases_fails():
    with pytest.raises(AssertionError, match="no cases"):
        each("number", [])(lambda number: None)()


@each("number", [1, 2])
@each("text", ["a", "b"])
def test_all_cases_share_a_fixture(tmp_path, number, text):
    (tmp_path / text).touch()
    assert tmp_path.is_dir()
    if (number, text) == (2, "b"):
        assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


@each("pair", [(1, 1), (2, 2)])
def test_a_case_of_one_name_may_be_a_tuple(pair):
    assert pair[0] == pair[1]
