"""The tools that come with mustcall, and what they are made of."""
