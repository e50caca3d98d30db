"""Small bundles and tools, and a clock that can be set."""

from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent
from onetool.sources.bundles.names import derived_id, new_id

SINCE = "2026-01-01T00:00:00.000Z"


class Clock:
    def __init__(self, now=1_790_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


def an_id():
    return new_id(1_790_000_000.0)


def bundle(slug="weather", **fields):
    return BundleContent(slug=slug, **fields)


def tool(url="https://api.example.com/${city}", **fields):
    given = {
        "type": "http",
        "description": "Says what the weather is like.",
        "arg_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "http_impl": {"request": {"urlTemplate": url}},
    }
    return ToolContent(**(given | fields))


def built_in(slug="fs", tools=("read-file", "list-dir")):
    made = Bundle(
        id=derived_id(slug), slug=slug, display_name=slug, is_built_in=True, created_at=SINCE, modified_at=SINCE
    )
    return made, [
        Tool(
            id=derived_id(f"{slug}.{name}"),
            bundle_id=made.id,
            slug=name,
            version="1",
            type="python",
            python_impl={"func": f"{slug}.{name}"},
            is_built_in=True,
            created_at=SINCE,
            modified_at=SINCE,
        )
        for name in tools
    ]


def with_tool(store, slug="forecast", version="1", **fields):
    """A bundle with a tool in it; their ids."""
    id = an_id()
    store.put_bundle(id, bundle())
    return id, store.put_tool(id, slug, version, tool(**fields))


def files(folder):
    """All that lies there but the state of this machine."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if ".state" not in path.parts
    }


TABLES = ("bundle_store", "bundle_files")


def rows(database):
    """All that is in the tables."""
    return {
        table: sorted(database.read(lambda work, table=table: work.execute(f"SELECT * FROM {table}")))
        for table in TABLES
    }


def file_of(folder, slug="forecast", version="1"):
    (found,) = folder.glob(f"*/tools/{slug}@{version}*.json")
    return found


def reasons(store):
    return {mistake.file.rsplit("/", 1)[-1]: mistake.message for mistake in store.mistakes()}
