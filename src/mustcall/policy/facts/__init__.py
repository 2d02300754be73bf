"""What is known and set before a turn begins: profiles, controls, sentences, routes."""
