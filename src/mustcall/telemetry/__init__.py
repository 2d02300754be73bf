"""What the layer tells of its work: lines in the log."""
