"""The figures of a run, and how they are written: terminal words, pages, pictures."""
