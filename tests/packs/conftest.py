"""Both ways of opening files: what holds for one must hold for the other."""

import pytest

from onetool.services.file_access import opening


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(opening, "openat2", lambda: None)
    elif opening.openat2() is None:
        pytest.skip("no openat2 here")
    return request.param
