"""Replies as they stream: events, their fold into a reply, and the way back."""
