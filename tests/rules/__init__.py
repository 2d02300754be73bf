"""Tests of the rules, driven through a gateway. A package: `tools/rules.py` has the same name."""
