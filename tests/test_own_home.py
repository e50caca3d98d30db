"""Tests never touch the home of the developer who runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_a_module_fixture_that_starts_a_server_writes_nothing_to_the_real_home(tmp_path):
    served = Path(__file__).parent / "interfaces" / "rest" / "ask" / "test_served.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "a_question_a_call", str(served)]
    ran = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert " passed" in ran.stdout, ran.stdout
    assert list(tmp_path.iterdir()) == []
