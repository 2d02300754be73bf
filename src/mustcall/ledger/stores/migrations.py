"""The ledger's tables, as named steps that are only ever added to.

A step that has been released is never changed: its checksum is kept in the database, and a database with another
checksum, or with a step this version does not know, is refused. Steps are written once for both databases.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from mustcall.core.errors import LedgerMismatch
from mustcall.ledger.stores.program import Statement

__all__ = ["MIGRATIONS", "TABLES", "Migration", "missing"]


class Migration(msgspec.Struct, frozen=True):
    """One step: its name, and the statements that make it."""

    name: str
    statements: tuple[str, ...]

    @property
    def checksum(self) -> str:
        """A digest of the statements as they are written here."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()[:16]

    def parsed(self) -> tuple[Statement, ...]:
        """Return the statements in both databases' words."""
        return tuple(Statement(text) for text in self.statements)


MIGRATIONS = (
    Migration(
        "0001_journal",
        (
            """CREATE TABLE mustcall_run (
                seq {serial}, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, status TEXT NOT NULL, owner TEXT,
                fence {int} NOT NULL, lease_until {real}, data {bytes} NOT NULL, outcome {bytes},
                created {real} NOT NULL, updated {real} NOT NULL)""",
            "CREATE INDEX mustcall_run_status ON mustcall_run (status, seq)",
            """CREATE TABLE mustcall_event (
                seq {serial}, run TEXT NOT NULL, step TEXT NOT NULL, attempt {int} NOT NULL, kind TEXT NOT NULL,
                fence {int} NOT NULL, data {bytes} NOT NULL, at {real} NOT NULL, UNIQUE (run, step, attempt, kind))""",
            "CREATE INDEX mustcall_event_run ON mustcall_event (run, seq)",
        ),
    ),
    Migration(
        "0002_responses",
        (
            """CREATE TABLE mustcall_conversation (
                id TEXT PRIMARY KEY, created {real} NOT NULL, updated {real} NOT NULL)""",
            "CREATE INDEX mustcall_conversation_updated ON mustcall_conversation (updated)",
            """CREATE TABLE mustcall_response (
                id TEXT PRIMARY KEY, conversation TEXT NOT NULL, parent TEXT, depth {int} NOT NULL, wire TEXT NOT NULL,
                model TEXT NOT NULL, tenant TEXT NOT NULL, input {bytes} NOT NULL, body {bytes} NOT NULL,
                settings {bytes} NOT NULL, created {real} NOT NULL)""",
            "CREATE INDEX mustcall_response_chain ON mustcall_response (conversation, depth)",
            "CREATE TABLE mustcall_item (id TEXT NOT NULL, response TEXT NOT NULL, PRIMARY KEY (id, response))",
            "CREATE INDEX mustcall_item_response ON mustcall_item (response)",
        ),
    ),
    Migration(
        "0003_turns",
        (
            """CREATE TABLE mustcall_turn (
                id TEXT PRIMARY KEY, at {real} NOT NULL, wire TEXT NOT NULL, model TEXT NOT NULL,
                upstream TEXT NOT NULL, protocol TEXT NOT NULL, force TEXT NOT NULL, outcome TEXT,
                status {int} NOT NULL, seconds {real} NOT NULL, tenant TEXT NOT NULL, response TEXT,
                input_tokens {int} NOT NULL, output_tokens {int} NOT NULL, adaptations TEXT NOT NULL,
                request {bytes} NOT NULL, reply {bytes} NOT NULL)""",
            "CREATE INDEX mustcall_turn_at ON mustcall_turn (at)",
            """CREATE TABLE mustcall_attempt (
                turn TEXT NOT NULL, number {int} NOT NULL, rung TEXT NOT NULL, verdict TEXT, remedy TEXT,
                digest TEXT NOT NULL, seconds {real} NOT NULL, sends {int} NOT NULL, error TEXT,
                input_tokens {int} NOT NULL, output_tokens {int} NOT NULL, PRIMARY KEY (turn, number))""",
        ),
    ),
    Migration(
        "0004_shared",
        (
            """CREATE TABLE mustcall_account (
                session TEXT PRIMARY KEY, started {real} NOT NULL, cost {int} NOT NULL, tokens {int} NOT NULL,
                calls {int} NOT NULL, egress {int} NOT NULL, estimated {int} NOT NULL, held_cost {int} NOT NULL,
                held_tokens {int} NOT NULL, held_calls {int} NOT NULL, held_egress {int} NOT NULL,
                running {int} NOT NULL, updated {real} NOT NULL)""",
            """CREATE TABLE mustcall_charge (
                session TEXT NOT NULL, turn TEXT NOT NULL, step TEXT NOT NULL, attempt {int} NOT NULL,
                cost {int} NOT NULL, tokens {int} NOT NULL, calls {int} NOT NULL, egress {int} NOT NULL,
                settled {int} NOT NULL, created {real} NOT NULL, PRIMARY KEY (session, turn, step, attempt))""",
            "CREATE INDEX mustcall_charge_open ON mustcall_charge (settled, created)",
            "CREATE TABLE mustcall_host (session TEXT NOT NULL, host TEXT NOT NULL, PRIMARY KEY (session, host))",
            """CREATE TABLE mustcall_breaker (
                name TEXT PRIMARY KEY, state TEXT NOT NULL, failures {int} NOT NULL, since {real} NOT NULL,
                probing {int} NOT NULL, version {int} NOT NULL)""",
            """CREATE TABLE mustcall_fact (
                upstream TEXT NOT NULL, model TEXT NOT NULL, field TEXT NOT NULL, value {bytes} NOT NULL,
                note TEXT NOT NULL, at {real} NOT NULL, PRIMARY KEY (upstream, model, field))""",
        ),
    ),
    Migration(
        "0005_holders",
        (
            "CREATE TABLE mustcall_holder (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, at {real} NOT NULL)",
            "CREATE INDEX mustcall_holder_at ON mustcall_holder (at)",
        ),
    ),
    Migration(
        "0006_tallies",
        (
            """CREATE TABLE mustcall_tally (
                upstream TEXT NOT NULL, model TEXT NOT NULL, subject TEXT NOT NULL, made {int} NOT NULL,
                missed {int} NOT NULL, first {real} NOT NULL, last {real} NOT NULL,
                PRIMARY KEY (upstream, model, subject))""",
        ),
    ),
    # What was learnt before it was known whose turns taught it is not believed any more: nobody could say of whom it
    # is true. It is learnt again within a few turns.
    Migration(
        "0007_learnt_by_tenant",
        (
            "DROP TABLE mustcall_fact",
            """CREATE TABLE mustcall_fact (
                upstream TEXT NOT NULL, model TEXT NOT NULL, field TEXT NOT NULL, tenant TEXT NOT NULL,
                value {bytes} NOT NULL, note TEXT NOT NULL, seen {int} NOT NULL, first {real} NOT NULL,
                at {real} NOT NULL, PRIMARY KEY (upstream, model, field, tenant))""",
            "DROP TABLE mustcall_tally",
            """CREATE TABLE mustcall_tally (
                upstream TEXT NOT NULL, model TEXT NOT NULL, subject TEXT NOT NULL, tenant TEXT NOT NULL,
                made {int} NOT NULL, missed {int} NOT NULL, first {real} NOT NULL, last {real} NOT NULL,
                PRIMARY KEY (upstream, model, subject, tenant))""",
        ),
    ),
    # What an attempt sent, what came back and what was wrong with it. Attempts from before have none of it.
    Migration(
        "0008_attempt_contents",
        (
            "ALTER TABLE mustcall_attempt ADD COLUMN tool TEXT",
            "ALTER TABLE mustcall_attempt ADD COLUMN problem TEXT",
            "ALTER TABLE mustcall_attempt ADD COLUMN request {bytes}",
            "ALTER TABLE mustcall_attempt ADD COLUMN reply {bytes}",
        ),
    ),
    # Whose a turn was, what it cost, when each attempt began and the bytes of its reply. What lists are filtered by is
    # in the index: a row's last columns stand behind its contents, and reading those for each row is slow. Names that
    # callers choose are not in it, because an index of PostgreSQL takes no long value.
    Migration(
        "0009_turn_facts",
        (
            "ALTER TABLE mustcall_turn ADD COLUMN session TEXT",
            "ALTER TABLE mustcall_turn ADD COLUMN client TEXT",
            "ALTER TABLE mustcall_turn ADD COLUMN error TEXT",
            "ALTER TABLE mustcall_turn ADD COLUMN cost_usd {real}",
            "ALTER TABLE mustcall_turn ADD COLUMN estimated {int}",
            "ALTER TABLE mustcall_attempt ADD COLUMN begun {real}",
            "ALTER TABLE mustcall_attempt ADD COLUMN raw {bytes}",
            "DROP INDEX mustcall_turn_at",
            "CREATE INDEX mustcall_turn_listed ON mustcall_turn (at, id, outcome, tenant, session, client, cost_usd)",
        ),
    ),
    # How each call failed that was made again, as JSON. Attempts from before have only their number.
    Migration("0010_transport_retries", ("ALTER TABLE mustcall_attempt ADD COLUMN retries TEXT",)),
    # What a probe measured of a model at an endpoint: the profile, the report it comes from, when it was measured, and
    # when somebody last set out to.
    Migration(
        "0011_measured",
        (
            """CREATE TABLE mustcall_measured (
                endpoint TEXT NOT NULL, wire TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
                profile {bytes} NOT NULL, report {bytes} NOT NULL, at {real} NOT NULL, tried {real} NOT NULL,
                PRIMARY KEY (endpoint, wire, model))""",
        ),
    ),
)

#: Every table with its columns in order; the order of tables is the one in which they can be filled. The number of a
#: run in its ledger is left out: it is another one in another ledger.
TABLES: dict[str, tuple[str, ...]] = {
    "run": ("id", "kind", "status", "owner", "fence", "lease_until", "data", "outcome", "created", "updated"),
    "event": ("seq", "run", "step", "attempt", "kind", "fence", "data", "at"),
    "conversation": ("id", "created", "updated"),
    "response": (
        *("id", "conversation", "parent", "depth", "wire", "model", "tenant", "input", "body", "settings", "created"),
    ),
    "item": ("id", "response"),
    "holder": ("id", "tenant", "at"),
    "turn": (
        *("id", "at", "wire", "model", "upstream", "protocol", "force", "outcome", "status", "seconds", "tenant"),
        *("response", "input_tokens", "output_tokens", "adaptations", "request", "reply"),
        *("session", "client", "error", "cost_usd", "estimated"),
    ),
    "attempt": (
        *("turn", "number", "rung", "verdict", "remedy", "digest", "seconds", "sends", "error", "input_tokens"),
        *("output_tokens", "tool", "problem", "request", "reply", "begun", "raw", "retries"),
    ),
    "account": (
        *("session", "started", "cost", "tokens", "calls", "egress", "estimated", "held_cost", "held_tokens"),
        *("held_calls", "held_egress", "running", "updated"),
    ),
    "charge": ("session", "turn", "step", "attempt", "cost", "tokens", "calls", "egress", "settled", "created"),
    "host": ("session", "host"),
    "breaker": ("name", "state", "failures", "since", "probing", "version"),
    "fact": ("upstream", "model", "field", "tenant", "value", "note", "seen", "first", "at"),
    "tally": ("upstream", "model", "subject", "tenant", "made", "missed", "first", "last"),
    "measured": ("endpoint", "wire", "model", "upstream", "profile", "report", "at", "tried"),
}


def missing(applied: Sequence[tuple[str, str]], place: str) -> tuple[Migration, ...]:
    """Return the steps a database still needs, from the (name, checksum) pairs it has; raise `LedgerMismatch`."""
    for (name, checksum), step in zip(applied, MIGRATIONS, strict=False):
        if name == step.name and checksum != step.checksum:
            raise LedgerMismatch(
                f"the ledger at {place} was made with another form of the step {name}; it belongs to another build "
                "of mustcall: use that one, or name a new ledger"
            )
        if name != step.name:
            raise LedgerMismatch(f"the ledger at {place} has the step {name!r} where this version has {step.name!r}")
    if len(applied) > len(MIGRATIONS):
        newer = applied[len(MIGRATIONS)][0]
        raise LedgerMismatch(
            f"the ledger at {place} is newer than this version of mustcall (it has the step {newer!r}): upgrade "
            "mustcall, or name another ledger"
        )
    return MIGRATIONS[len(applied) :]
