"""The engine's memory: the ledger, table by table, in one SQLite file."""
