"""The parts of `rmsplugin simulate`: where a trace comes from, and what is told."""
