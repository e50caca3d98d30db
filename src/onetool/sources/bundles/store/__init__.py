"""The store of bundles: a bundle is its files, wherever they are kept.

store       BundleStore: reading and changing, by the same rules for every storage
storage     the files in a folder, or in the table of a database that replicas share
contents    an immutable snapshot of all bundles and tools in memory
folder      scanning, reading and writing the files of a folder, and its lock
rows        the table of files, in a database, or as the mirror of a folder
paths       the paths of files
text        the texts of files
overlay     the settings of built-in and derived bundles and tools
copy        copying everything between two stores
"""
