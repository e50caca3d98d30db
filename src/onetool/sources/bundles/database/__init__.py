"""The store that keeps bundles in the database that replicas share.

The tables are the truth. Each replica reads from an index of its own, in SQLite, which follows them.

    tables      a change of the tables, in one transaction
    following   takes what has changed into the index
    store       the store
    usage       how often tools were called
"""
