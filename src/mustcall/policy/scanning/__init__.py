"""What is found in a reply's text: calls, reasoning, echoes of ours."""
