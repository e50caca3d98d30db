import pytest
from sources.bundles.contents.made import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()
