"""A language model inside this process, as an upstream like any other: it answers calls of the chat wire."""
