"""The shares of callers: nobody keeps others from theirs, and no place stays free while somebody waits."""

import random

import pytest

from onetool.core.fair_shares import FairShares


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("places", [1, 2, 3, 4, 7, 16])
def test_no_caller_keeps_others_from_their_share(places):
    shares, share = FairShares(places), places - places // 2
    for _ in range(places):
        assert shares.take("ada")
    assert not shares.take("ada")
    assert [shares.take(f"caller {number}") for number in range(places)] == [
        number < places - share for number in range(places)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_callers_do(seed):
    """At most half as many again are held; who waits gets what becomes free; and nothing is lost."""
    chance = random.Random(seed)
    places, callers = chance.choice([1, 2, 3, 5, 8]), ["ada", "bob", "cy", "dee"][: chance.choice([1, 2, 4])]
    shares: FairShares[int] = FairShares(places)
    for number in range(500):
        caller = chance.choice(callers)
        if chance.random() < 0.5:
            if not shares.take(caller):
                shares.wait(caller, number)
        elif shares.held[caller]:
            shares.give_back(caller)
            while shares.next() is not None:
                pass
        elif chance.random() < 0.3 and caller in shares.waiting:
            assert shares.stop_waiting(caller, shares.waiting[caller][0])
        held = shares.held.total()
        assert held <= places + places // 2
        assert held >= places or not shares.waiting
    while shares.held:
        shares.give_back(next(iter(shares.held)))
        while shares.next() is not None:
            pass
    assert not shares.waiting
