"""2-ot-pack.md: the scenario of `ot.version`."""

from specs.ot import Agent

import onetool


def test_get_version(tmp_path):
    with Agent(tmp_path) as agent:
        assert agent.value("ot.version()") == onetool.__version__
        assert agent.reads("ot.version()") == onetool.__version__
