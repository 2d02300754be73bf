"""What holds for every test."""

from hypothesis import settings

# Nothing is timed in tests: how long an example takes says more about the machine than about the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
