"""`rmsplugin setup`: writes what a host needs, and says what only an administrator can do."""
