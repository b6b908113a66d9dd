"""The parts of `rmsplugin report`: where its facts come from, and the forms in which they are shown."""
