"""What `ot.help()` says to whoever knows nothing yet."""

OVERVIEW = """\
# OneTool

Call tools in code as pack.tool(key=value). Find out what there is with:

- ot.search("what you want to do"): the tools that fit best
- ot.tools(pattern="word"): tools by name; ot.packs(): what they belong to
- ot.aliases(), ot.snippets(): shorter names, and templates of code that are called as $name key=value
- ot.help("name"): all about one tool, pack, alias or $snippet; anything else is searched for, typos included
- ot.signature("pack.tool"): how a tool is called, in a line

Info levels of ot.tools, ot.packs, ot.aliases, ot.snippets and of matches in ot.help:
- info="list": names only
- info="min": names and what they are for (what you get if you say nothing)
- info="full": everything

Examples:
- ot.tools(pattern="file", info="list")
- ot.help("fs.read_file")
- ot.call("any name", {"key": "value"}): also tools whose names Python can't say

Tips:
- A large result comes back as a handle: ot.result(handle="…", offset=101), or search="regex" for the lines that matter.
- Do the whole job in one run: loop, filter, and return only what you need.
- Something is missing? ot.health() and ot.servers() tell how things are, ot.stats() what was called.
- ot.reload() reads the config again."""
