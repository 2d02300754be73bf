"""What every dialect reads with: the buffer, JSON and Python literals as they arrive, bare values, one call object."""
