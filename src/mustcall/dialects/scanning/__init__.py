"""The machine of the scanner: markers, modes, and what becomes of each stretch of text."""
