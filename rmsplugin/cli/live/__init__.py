"""Commands that ask the engine, or tell it to do something: a module a command."""
