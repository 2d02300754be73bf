"""The gateway's configuration: file, environment, flags, and what checks and writes it."""
