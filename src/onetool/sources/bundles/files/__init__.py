"""The store that keeps bundles in a folder of files, which people can read, edit, and keep under git.

    bundles/
      weather-b302099a8057/        the slug it was made with, and the end of its id
        bundle.json
        tools/forecast@1.json      one file a tool
      builtin.json                 switches of built-in bundles and tools
      .state/                      of this machine alone: the index (derived), usage, the key of page tokens

What a file says counts, not what it is called: only what is written here is named as above.

layout     which file is what, and how it is called        form       a bundle or a tool as the text of a file, and back
lock       one writer at a time, among all processes       writing    durable or not at all
opening    a file's bytes, if it is one that we read       migrations files of older versions
scanning   what lies there, against what is known of it    overlay    the switches of what is built in
reading    files that have changed                         looking    … taken into the index; indexed: what that answers
state      what this machine knows of the folder           usage      how often tools were called
rules      what is asked of a change                       work       one change of files and index
times      as texts                                        store      FileStore: all of it
"""
