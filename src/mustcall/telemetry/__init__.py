"""What the layer tells of its work: one stream of events, and what is made of it: metrics, spans, lines in the log."""
