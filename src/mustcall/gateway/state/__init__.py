"""What the gateway keeps for callers and operators between requests."""
