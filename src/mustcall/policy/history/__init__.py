"""The conversation so far, as an upstream can take it."""
