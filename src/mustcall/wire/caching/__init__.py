"""What a server keeps of requests it has read and written, so that a growing conversation costs what is new in it."""
