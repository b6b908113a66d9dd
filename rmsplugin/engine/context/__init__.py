"""The things that all parts of the engine share: settings, ledger, the neighbours, and the clock."""
