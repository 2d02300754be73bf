"""Attacks on a running gateway: raw sockets against its front, hostile upstreams behind it. One table per kind.

Nothing of the product is imported: what an attack sends is written out here. To add one, append to the `ATTACKS` of a
module, or add a module to `ALL`.
"""

from attacks import bodies, doors, replies, schemas
from attacks.sending import Attack

__all__ = ["ALL"]

ALL: tuple[Attack, ...] = (*doors.ATTACKS, *bodies.ATTACKS, *replies.ATTACKS, *schemas.ATTACKS)
