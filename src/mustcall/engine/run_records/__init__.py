"""What a run came to and where it stands, as values: its result, its checkpoints, its trace."""
