"""The commands that ask models: `chat`, `run`, `coordinate`, `worker`."""
