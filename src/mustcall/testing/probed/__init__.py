"""Servers for probes: an honest one that keeps every guarantee, and one for each single lie.

`LyingServer()` is honest; `LyingServer(lie)` does one thing wrong, always or at a `rate`. Each is a transport without a
socket, for a probe or a gateway in the same process; `LyingUpstream(lie)` is the same on loopback HTTP.
"""

from mustcall.testing.probed.lies import LIES, find_lie
from mustcall.testing.probed.lying import Lie
from mustcall.testing.probed.server import LyingServer, LyingUpstream

__all__ = ["LIES", "Lie", "LyingServer", "LyingUpstream", "find_lie"]
