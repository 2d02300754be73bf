"""Text: the name that somebody may have meant, and expressions that are right on every version of Python."""
