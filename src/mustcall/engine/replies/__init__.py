"""A reply on its way to the caller: what of it may go out, in which names, as bytes or as events."""
