"""The store that keeps bundles in a folder of files, which people can read, edit, and keep under git.

    bundles/
        weather-b302099a8057/       the slug it was made with, and the end of its id
            bundle.json
            tools/forecast@1.json   one file a tool
        builtin.json                switches of built-in bundles and tools
        .state/                     of this machine alone: caches, the log of changes, usage, the key of page tokens

What a file says counts, not its name: only what is written here is named as above.
"""
