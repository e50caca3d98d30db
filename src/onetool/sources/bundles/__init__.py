"""Bundles: tools that people keep, in files that they can read, switch on and off, version and share.

model    what a bundle and a tool are            names    slugs, versions, ids
store    what a place that keeps them can do     files/   the one that keeps them in a folder
index/   the derived index: lists and search     shelf    the store, the built-in packs, and the registry together
"""
