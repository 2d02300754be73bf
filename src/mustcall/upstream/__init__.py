"""The seam to whatever answers: HTTP endpoints and, in tests, fakes."""
