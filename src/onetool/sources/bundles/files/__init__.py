"""The store of bundles in a folder of files, which users can read, edit, and keep under version control.

    bundles/
        weather-b302099a8057/       the original slug and the end of the id
            bundle.json
            tools/forecast@1.json   one file per tool
        builtin.json                switches of built-in bundles and tools
        .state/                     local to this machine: caches, the log of changes, usage, the key of page tokens

The content of a file counts, not its name. Only files written by the store are named as above.
"""
