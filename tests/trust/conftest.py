"""What every test of a stranger's folder needs: somebody who counts who calls."""

import pytest
from trust.hostile import Listener


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()
