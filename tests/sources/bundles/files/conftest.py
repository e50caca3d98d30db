import pytest
from sources.bundles.files.things import Clock, FileStore


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock):
    """Opens stores of one folder; all are closed at the end."""
    stores = []

    def open_store(*built_in, folder=tmp_path / "bundles", **options):
        stores.append(FileStore(folder, built_in, now=clock, **options))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(opened):
    return opened()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bundles"
