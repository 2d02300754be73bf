"""What a reply is, and which of it may go out."""
