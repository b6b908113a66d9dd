"""The engine's memory: the ledger, table by table, in one SQLite file."""

from rmsplugin.left_out import imports_give

with imports_give(numpy=None, pandas=None):  # here, before any module of this package imports it
    import sqlite_utils as sqlite_utils
