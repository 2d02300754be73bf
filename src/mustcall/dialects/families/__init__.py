"""The dialects, one module per family. Each module is data (`DIALECTS`) and the small parser its family needs."""
