"""One attempt of a turn: written, sent, read, judged, and what its refusal or its failure teaches."""
