"""Measures models with and without mustcall: the same prompts, both ways, scored by the same rules."""
