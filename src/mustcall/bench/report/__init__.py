"""What a run of the benchmark found, as values, figures, tables, a page and a picture."""
