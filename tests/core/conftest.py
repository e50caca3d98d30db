"""What tests of the core share."""

import pytest
from helpers import FakeClock


@pytest.fixture
def clock(monkeypatch):
    """The clock of calls and their deadlines."""
    clock = FakeClock()
    for module in ("call", "context", "executor"):
        monkeypatch.setattr(f"onetool.core.{module}.monotonic", clock)
    return clock
