"""The command line: commands and nothing else; the work is done below."""
