"""Pure decisions: what to do next, as tables and frozen values."""
