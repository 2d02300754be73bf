"""The commands that set mustcall up and serve it: `init`, `doctor`, `config`, `models`, `serve`, `completion`."""
