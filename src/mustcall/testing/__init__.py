"""Scripted upstreams for tests, ours and yours."""
