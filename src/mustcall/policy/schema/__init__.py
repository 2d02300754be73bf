"""Schemas, and values held against them: compiled, checked, repaired."""
