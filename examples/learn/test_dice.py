import dice
from onetool.sdk.testing import packs


def test_roll():
    with packs(dice) as tools:
        assert len(tools.call("dice.roll", times=3)) == 3
        assert tools.result("dice.roll", sides="six").error.code == "invalid_args"
