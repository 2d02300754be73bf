"""The commands that show what happened and what would: `turns`, `runs`, `ledger`, `replay`, `explain` and others."""
