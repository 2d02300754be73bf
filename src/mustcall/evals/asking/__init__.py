"""Questions on their way to a model and replies on their way back: requests, arms, rows, the file that keeps them."""
