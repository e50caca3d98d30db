"""What is limited for a server as a whole is divided among its workers."""

import pytest

from onetool.core.limits import WorkerShare


@pytest.mark.parametrize(("total", "parts"), [(8, [3, 3, 2]), (3, [1, 1, 1]), (4, [2, 1, 1]), (1, [1, 1, 1])])
def test_the_parts_are_the_whole_and_nobody_has_none(total, parts):
    assert [WorkerShare(number, 3).of(total) for number in (1, 2, 3)] == parts
