"""Measures what the gateway costs: against direct calls, a bare pass-through and other gateways.

Everything is started as processes and talked to over loopback; nothing of the gateway is imported here, so that what is
measured is what `mustcall serve` does. `docs/benchmarks.md` says what the figures mean. It needs Linux.
"""
