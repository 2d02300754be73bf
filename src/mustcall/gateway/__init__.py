"""The HTTP server: three wires in, one engine behind them."""
