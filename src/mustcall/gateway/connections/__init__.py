"""What a connection may do, and how its requests are read and its answers written."""
