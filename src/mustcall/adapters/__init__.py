"""Ways into the engine for code that has a client or a framework already. Nothing imports this package.

Each module needs a package that mustcall itself does without, and loads it only when it is used.
"""
