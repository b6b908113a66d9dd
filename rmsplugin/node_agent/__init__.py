"""What the engine may ask a node to do with files, over ssh with a forced command. Standard library only."""
