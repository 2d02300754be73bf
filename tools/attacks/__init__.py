"""Attacks on a running gateway: raw sockets against its front, hostile upstreams behind it. One table per kind.

Nothing of the product is imported: what an attack sends is written out here. To add one, append to the `ATTACKS` of a
module, or add a module to `KINDS`.
"""

from attacks import bodies, doors, replies, schemas
from attacks.sending import Attack

__all__ = ["ALL", "KINDS"]

KINDS: dict[str, tuple[Attack, ...]] = {
    "doors": doors.ATTACKS,
    "bodies": bodies.ATTACKS,
    "replies": replies.ATTACKS,
    "schemas": schemas.ATTACKS,
}
ALL: tuple[Attack, ...] = tuple(one for attacks in KINDS.values() for one in attacks)
