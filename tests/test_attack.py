"""The table of attacks in docs/operate/security.md is the one that `make attack` prints."""

import re

import pytest
from attack import collected, recorded


@pytest.mark.long
def test_the_table_has_every_attack_and_none_got_through():
    rows = [re.split(r" *\| *", row.strip("|\n ")) for row in recorded().splitlines()]
    counts = {area: (int(tried.replace(",", "")), int(through)) for area, tried, through in rows}
    areas = collected()
    expected = {area: (count, 0) for area, count in areas.items()} | {"all": (areas.total(), 0)}
    assert counts == expected, "run `make attack ARGS=--record`, which writes the table anew"
