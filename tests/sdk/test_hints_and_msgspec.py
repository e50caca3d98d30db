"""Why schemas of hints are our own (decision 26): msgspec makes others of them, or none."""

from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from annotated_types import Ge
from helpers import each

from onetool.sdk.hints import HintReader

ALIKE = [str, int, float, bool, list[int], dict[str, int], int | None]
DIFFERENT = [
    Literal["b", "a"],
    Annotated[int, Ge(1)],
    Decimal,
    datetime,
    dict[int, str],
    set[int],
]
REFUSED = [Path, object, Counter[str], str | Path]


@each("hint", ALIKE)
def test_where_both_agree(hint):
    assert HintReader().form(hint).schema == msgspec.json.schema(hint)


@each("hint", DIFFERENT)
def test_where_they_do_not(hint):
    assert HintReader().form(hint).schema != msgspec.json.schema(hint)


@pytest.mark.parametrize("hint", REFUSED, ids=str)
def test_what_msgspec_refuses(hint):
    assert isinstance(HintReader().form(hint).schema, dict)
    with pytest.raises((TypeError, RuntimeError)):
        msgspec.json.schema(hint)
