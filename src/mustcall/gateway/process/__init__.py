"""The gateway as processes: server, workers, service manager, memory."""
