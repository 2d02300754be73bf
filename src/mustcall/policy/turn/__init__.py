"""The state of a turn, and what is done about a verdict."""
