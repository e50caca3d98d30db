import pytest

from onetool.sources.bundles.index import Index


@pytest.fixture(params=["file", "memory"])
def index(request, tmp_path):
    """In a file and in memory: both do the same."""
    made = Index(tmp_path / "state" / "index.db" if request.param == "file" else None)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "index.db"


@pytest.fixture
def opened(file):
    """Opens the same file as often as it is called."""
    all_of_them = []

    def one_more(fill=None) -> Index:
        all_of_them.append(Index(file, fill))
        return all_of_them[-1]

    yield one_more
    for one in all_of_them:
        one.close()
