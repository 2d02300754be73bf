"""One run of an agent: its loop, its steps, where it stands, and what it came to."""
