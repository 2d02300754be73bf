"""The only place that awaits: carries a caller's request to an upstream and its reply back."""
