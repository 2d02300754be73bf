"""Fuzz targets: for any bytes, nothing but the product's own errors. `tools/fuzz.py` runs them."""
