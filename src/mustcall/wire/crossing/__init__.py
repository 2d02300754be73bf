"""What crosses from one wire to another: names and ids, tools, reasoning state, effort, turns."""
