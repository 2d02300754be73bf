"""How much may be spent, fetched and computed."""
