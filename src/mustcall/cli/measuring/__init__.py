"""The commands that measure: `bench`, `demo`, `eval`, `probe`."""
