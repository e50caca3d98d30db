"""How well the search finds, on public sets: no figure may fall below the recorded one."""

import json

import pytest
from tests.search_eval import FLOOR, SETS, WAYS, load_set, measure

pytestmark = pytest.mark.long

FIGURES = json.loads(FLOOR.read_text("utf-8"))
SLACK = 0.002  # two queries of a thousand: another version of numpy may round another way


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("way", WAYS)
def test_no_figure_falls(name: str, way: str) -> None:
    found = measure(load_set(name), way)._asdict()
    recorded = FIGURES[name][way]
    assert {figure: (found[figure], least) for figure, least in recorded.items() if found[figure] < least - SLACK} == {}


def test_meaning_and_words_together_are_better_than_words_alone() -> None:
    for name in SETS:
        for figure in ("r1", "r5", "mrr", "ndcg"):
            assert FIGURES[name]["blended"][figure] > FIGURES[name]["words"][figure]
