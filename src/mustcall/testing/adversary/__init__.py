"""A lying upstream: what it says, how it writes it on each wire, and the truth about it."""
