"""The requests of the engine to a node about files, over ssh with a forced command. Standard library only."""
