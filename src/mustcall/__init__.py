"""mustcall: tool calls you can rely on, from any model."""

__version__ = "0.1.0"

__all__ = ["__version__"]
