"""`rmsplugin ledger`: check the ledger, copy it, ask it."""
