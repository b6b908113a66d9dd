"""What commands share: arguments, tables, the way to the engine."""
