"""Text-form tool calls: finding them while they stream, and writing them."""
