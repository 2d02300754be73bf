"""What the user's words ask for: tools, sums, files, examples."""
