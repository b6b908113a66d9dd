"""What is remembered: the ledger, table by table, in one SQLite file."""
