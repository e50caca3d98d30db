import pytest
from postgres import database, database_url, postgres
from sources.bundles.files.things import Clock, files, rows

from onetool.sources.bundles.store.store import database_store, folder_store

BOTH = ("test_rules", "test_rename", "test_beside")  # in these modules, tests without `folder` are for every store


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        named = metafunc.function.__code__.co_varnames[: metafunc.function.__code__.co_argcount]
        is_for_all = metafunc.module.__name__.rpartition(".")[2] in BOTH and not {"folder", "tmp_path"} & set(named)
        metafunc.parametrize("backend", ["files", "postgres"] if is_for_all else ["files"], scope="function")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock, backend, request):
    """Opens stores of one folder, or of one database, each with an index of its own; all are closed at the end."""
    stores = []

    def open_files(*built_in, folder=tmp_path / "bundles", **options):
        stores.append(folder_store(folder, built_in, now=clock, **options))
        return stores[-1]

    def open_tables(*built_in, **options):
        state = tmp_path / f"state-{len(stores)}"
        stores.append(database_store(request.getfixturevalue("database"), state, built_in, now=clock, **options))
        return stores[-1]

    yield open_files if backend == "files" else open_tables
    for store in stores:
        store.close()


@pytest.fixture
def store(opened):
    return opened()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bundles"


@pytest.fixture
def kept(backend, tmp_path, request):
    """Gives all that is kept, byte by byte."""
    return (
        (lambda: files(tmp_path / "bundles"))
        if backend == "files"
        else lambda: rows(request.getfixturevalue("database"))
    )


__all__ = ["database", "database_url", "postgres"]
