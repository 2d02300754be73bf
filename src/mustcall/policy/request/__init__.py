"""What a turn demands, and the request of each attempt."""
