"""Every statement the ledger makes, in one table, written once for both databases.

Nothing here decides anything: `journal`, `responses`, `traces`, `shared` and `keeping` say when which is used.
"""

from mustcall.core.adaptation import REPAIRS, AdaptationKind
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import Statement

_RUN = ", ".join(TABLES["run"])
_RESPONSE = ", ".join(TABLES["response"])


def _insert(table: str, *, ignore: bool = False) -> Statement:
    """Return the statement that fills a whole row of a table."""
    columns = TABLES[table]
    values = ", ".join(f":{column}" for column in columns)
    tail = " ON CONFLICT DO NOTHING" if ignore else ""
    return Statement(f"INSERT INTO mustcall_{table} ({', '.join(columns)}) VALUES ({values}){tail}")


#: The columns of tables filled many rows at once that are not text.
_KINDS = {
    "at": "float8",
    "seconds": "float8",
    "request": "bytes",
    "reply": "bytes",
    "raw": "bytes",
    "begun": "float8",
    "cost_usd": "float8",
    **dict.fromkeys(("status", "input_tokens", "output_tokens", "number", "sends", "estimated"), "int8"),
}


def _insert_many(table: str) -> Statement:
    """Return the statement that fills many rows; PostgreSQL reads them from one text, which costs its client least."""
    columns = TABLES[table]
    places = ", ".join("?" * len(columns))
    sqlite = f"INSERT INTO mustcall_{table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING"
    read = [f"decode({name}, 'base64')" if _KINDS.get(name) == "bytes" else name for name in columns]
    typed = [f"{name} {_KINDS.get(name, 'text').replace('bytes', 'text')}" for name in columns]
    postgres = f"""INSERT INTO mustcall_{table} ({", ".join(columns)}) SELECT {", ".join(read)}
        FROM json_to_recordset(:rows) AS given ({", ".join(typed)}) ON CONFLICT DO NOTHING"""
    return Statement(sqlite, postgres)


# Runs. Every claim raises the fence; every write of an owner names the fence it was given.

_CREATE = f"""INSERT INTO mustcall_run ({_RUN})
    VALUES (:id, :kind, :status, :owner, :fence, {{now}} + :lease, :data, NULL, {{now}}, {{now}}) ON CONFLICT (id) """
_MAY_CLAIM = """status IN ('queued', 'running', 'waiting')
    AND (mustcall_run.owner IS NULL OR mustcall_run.lease_until < {now} OR :take = 1
    OR mustcall_run.owner = :gone)"""

RUN_START = Statement(_CREATE + f"DO NOTHING RETURNING {_RUN}")
RUN_CLAIM = Statement(
    f"""UPDATE mustcall_run SET status = 'running', owner = :owner, fence = fence + 1, lease_until = {{now}} + :lease,
    updated = {{now}} WHERE id = :id AND {_MAY_CLAIM} RETURNING {_RUN}"""
)
RUN_CLAIM_FREE = Statement(
    f"""UPDATE mustcall_run SET status = 'running', owner = :owner, fence = fence + 1, lease_until = {{now}} + :lease,
    updated = {{now}} WHERE id IN (SELECT id FROM mustcall_run WHERE status IN ('queued', 'running')
    AND kind = :kind AND (owner IS NULL OR lease_until < {{now}}) ORDER BY seq LIMIT :most {{skip}})
    RETURNING {_RUN}"""
)
RUN_RENEW = Statement(
    """UPDATE mustcall_run SET lease_until = {now} + :lease, updated = {now}
    WHERE id = :id AND fence = :fence AND status = 'running' RETURNING fence"""
)
RUN_END = Statement(
    """UPDATE mustcall_run SET status = :status, outcome = :outcome, owner = NULL, lease_until = NULL, updated = {now}
    WHERE id = :id AND fence = :fence AND status = 'running' RETURNING fence"""
)
RUN_CANCEL = Statement(
    f"""UPDATE mustcall_run SET status = 'cancelled', fence = fence + 1, owner = NULL, lease_until = NULL,
    updated = {{now}} WHERE id = :id AND status IN ('queued', 'running', 'waiting') RETURNING {_RUN}"""
)
RUN_GET = Statement(f"SELECT {_RUN} FROM mustcall_run WHERE id = :id")
RUN_LIST = Statement(
    f"""SELECT {_RUN} FROM mustcall_run WHERE (:status = '' OR status = :status) AND (:kind = '' OR kind = :kind)
    AND created < :before ORDER BY created DESC, seq DESC LIMIT :most"""
)
RUN_EXPIRED = Statement(
    f"""SELECT {_RUN} FROM mustcall_run WHERE status = 'running' AND kind = :kind AND lease_until < {{now}}
    ORDER BY seq LIMIT :most"""
)
RUN_SHRED = Statement("UPDATE mustcall_run SET data = :data WHERE id = :id")

EVENT_ADD = Statement(
    """INSERT INTO mustcall_event (run, step, attempt, kind, fence, data, at)
    SELECT :run, :step, :attempt, :kind, :fence, :data, {now} FROM mustcall_run
    WHERE id = :run AND fence = :fence AND status = 'running' {share}
    ON CONFLICT (run, step, attempt, kind) DO NOTHING RETURNING seq"""
)
EVENT_GET = Statement(
    """SELECT fence, data FROM mustcall_event
    WHERE run = :run AND step = :step AND attempt = :attempt AND kind = :kind"""
)
EVENT_LIST = Statement(
    """SELECT seq, run, step, attempt, kind, fence, data, at FROM mustcall_event
    WHERE run = :run AND seq > :after ORDER BY seq"""
)
EVENT_SHRED = Statement("UPDATE mustcall_event SET data = :data WHERE seq = :seq")

# Responses. A chain is read by conversation and depth, and its parents are walked in memory.

CONVERSATION_TOUCH = Statement(
    """INSERT INTO mustcall_conversation (id, created, updated) VALUES (:id, {now}, {now})
    ON CONFLICT (id) DO UPDATE SET updated = excluded.updated"""
)
RESPONSE_PUT = Statement(
    f"""INSERT INTO mustcall_response ({_RESPONSE}) VALUES (:id, :conversation, :parent, :depth, :wire, :model,
    :tenant, :input, :body, :settings, {{now}}) ON CONFLICT (id) DO NOTHING RETURNING id"""
)
RESPONSE_GET = Statement(f"SELECT {_RESPONSE} FROM mustcall_response WHERE id = :id AND tenant = :tenant")
RESPONSE_CHAIN = Statement(
    f"""SELECT {_RESPONSE} FROM mustcall_response WHERE conversation = :conversation AND depth <= :depth
    AND tenant = :tenant ORDER BY depth"""
)
RESPONSE_DELETE = Statement("DELETE FROM mustcall_response WHERE id = :id AND tenant = :tenant RETURNING id")
ITEM_PUT = _insert("item", ignore=True)
ITEM_DELETE = Statement("DELETE FROM mustcall_item WHERE response = :response")
ITEM_FIND = Statement(
    f"""SELECT {", ".join(f"r.{column}" for column in TABLES["response"])} FROM mustcall_item i
    JOIN mustcall_response r ON r.id = i.response WHERE i.id = :id AND r.tenant = :tenant
    ORDER BY r.created DESC LIMIT 1"""
)
HOLDER_PUT = Statement(
    "INSERT INTO mustcall_holder (id, tenant, at) VALUES (:id, :tenant, {now}) ON CONFLICT (id) DO NOTHING"
)
HOLDER_GET = Statement("SELECT id FROM mustcall_holder WHERE id = :id AND tenant = :tenant")

# Turns.

TURN_PUT = _insert_many("turn")
ATTEMPT_PUT = _insert_many("attempt")
_WANTED = {name: name for name in ("model", "upstream", "client", "tenant")}
_WANTED["outcome"] = "COALESCE(outcome, CASE WHEN status = 0 THEN 'gone' ELSE 'none' END)"
_TURNS = f"""FROM mustcall_turn WHERE (at, id) < (:before, :before_id)
    {" ".join(f"AND (:{name} = '' OR {held} = :{name})" for name, held in _WANTED.items())}
    AND (:session = '' OR substr(session, 1, length(:session)) = :session
        OR (:or_session <> '' AND session = :or_session))
    AND (:verdict = '' OR EXISTS (
        SELECT 1 FROM mustcall_attempt a WHERE a.turn = mustcall_turn.id AND a.verdict = :verdict))
    ORDER BY at DESC, id DESC LIMIT :most"""
_NO_CONTENTS = {"request": "NULL", "reply": "NULL", "raw": "NULL"}
TURN_LIST = Statement(f"SELECT {', '.join(_NO_CONTENTS.get(name, name) for name in TABLES['turn'])} {_TURNS}")
TURN_LIST_ATTEMPTS = Statement(
    f"""SELECT {", ".join(_NO_CONTENTS.get(name, name) for name in TABLES["attempt"])} FROM mustcall_attempt
    WHERE turn IN (SELECT id {_TURNS}) ORDER BY turn, number"""
)
TURN_GET = Statement(f"SELECT {', '.join(TABLES['turn'])} FROM mustcall_turn WHERE id = :id")
ATTEMPT_LIST = Statement(
    f"SELECT {', '.join(TABLES['attempt'])} FROM mustcall_attempt WHERE turn = :turn ORDER BY number"
)
# What turns came to, by what their first attempt was and whether a reply was mended. The patterns are values, because
# the databases do not agree on how a percent sign is written.
MENDED = {f"mended_{chr(97 + number)}": f"%{kind}:%" for number, kind in enumerate(sorted(REPAIRS))}
_MENDED = " OR ".join(f"t.adaptations LIKE :{name}" for name in MENDED)
# Of the models used most every group is told: a rate without its rarest outcomes would be wrong.
TURN_GROUPS = Statement(
    f"""WITH busy AS (SELECT upstream, model, COUNT(*) OVER () AS models FROM mustcall_turn
        WHERE at >= :since AND (:tenant = '' OR tenant = :tenant)
        GROUP BY upstream, model ORDER BY COUNT(*) DESC, upstream, model LIMIT :most_models)
    SELECT b.models, t.upstream, t.model, t.outcome, a.verdict, CASE WHEN {_MENDED} THEN 1 ELSE 0 END AS mended,
    COUNT(*), SUM(t.input_tokens), SUM(t.output_tokens), SUM(t.seconds), SUM(COALESCE(t.cost_usd, 0))
    FROM mustcall_turn t JOIN busy b ON b.upstream = t.upstream AND b.model = t.model
    LEFT JOIN mustcall_attempt a ON a.turn = t.id AND a.number = 1
    WHERE t.at >= :since AND (:tenant = '' OR t.tenant = :tenant)
    GROUP BY b.models, t.upstream, t.model, t.outcome, a.verdict, mended ORDER BY COUNT(*) DESC"""
)
ATTEMPT_GROUPS = Statement(
    """SELECT a.verdict, a.remedy, COUNT(*) FROM mustcall_turn t JOIN mustcall_attempt a ON a.turn = t.id
    WHERE t.at >= :since AND (:tenant = '' OR t.tenant = :tenant) GROUP BY a.verdict, a.remedy
    ORDER BY COUNT(*) DESC LIMIT :most"""
)
# Turns by each kind of their adaptations, which stand one on a line. Kinds are few; what they were done to is without
# end, so that groups of whole adaptations would have to be cut.
CHANGES = {f"kind_{kind}": f"%\n{kind}:%" for kind in AdaptationKind}
CHANGE_GROUPS = Statement(
    f"""SELECT {", ".join(f"SUM(CASE WHEN :line || adaptations LIKE :{name} THEN 1 ELSE 0 END)" for name in CHANGES)}
    FROM mustcall_turn WHERE at >= :since AND adaptations <> '' AND (:tenant = '' OR tenant = :tenant)"""
)

# Money. No row from ACCOUNT_RESERVE is a refusal: a cap is reached, counting what still runs. Cost is in billionths.

_KEY = "session = :session AND turn = :turn AND step = :step AND attempt = :attempt"
_FREE = ", ".join(
    f"held_{name} = {{greatest}}(0, mustcall_account.held_{name} - :held_{name})"
    for name in ("cost", "tokens", "calls", "egress")
)

CHARGE_PUT = Statement(
    """INSERT INTO mustcall_charge (session, turn, step, attempt, cost, tokens, calls, egress, settled, created)
    VALUES (:session, :turn, :step, :attempt, :cost, :tokens, :calls, :egress, :settled, {now})
    ON CONFLICT DO NOTHING RETURNING attempt"""
)
CHARGE_SETTLE = Statement(
    f"UPDATE mustcall_charge SET settled = 1 WHERE {_KEY} AND settled = 0 RETURNING cost, tokens, calls, egress"
)
CHARGE_DROP = Statement(
    f"DELETE FROM mustcall_charge WHERE {_KEY} AND settled = 0 RETURNING cost, tokens, calls, egress"
)
CHARGE_STALE = Statement(
    """UPDATE mustcall_charge SET settled = 1 WHERE settled = 0 AND created < {now} - :age
    RETURNING session, cost, tokens, calls, egress"""
)
ACCOUNT_RESERVE = Statement(
    """INSERT INTO mustcall_account (session, started, cost, tokens, calls, egress, estimated, held_cost, held_tokens,
    held_calls, held_egress, running, updated)
    VALUES (:session, {now}, 0, 0, 0, 0, 0, :cost, :tokens, :calls, :egress, 1, {now})
    ON CONFLICT (session) DO UPDATE SET held_cost = mustcall_account.held_cost + excluded.held_cost,
    held_tokens = mustcall_account.held_tokens + excluded.held_tokens,
    held_calls = mustcall_account.held_calls + excluded.held_calls,
    held_egress = mustcall_account.held_egress + excluded.held_egress,
    running = mustcall_account.running + 1, updated = excluded.updated
    WHERE (:cap_cost = 0 OR mustcall_account.cost + mustcall_account.held_cost < :cap_cost)
    AND (:cap_tokens = 0 OR mustcall_account.tokens + mustcall_account.held_tokens < :cap_tokens)
    AND (:cap_calls = 0 OR mustcall_account.calls + mustcall_account.held_calls < :cap_calls)
    AND (:cap_egress = 0 OR mustcall_account.egress + mustcall_account.held_egress < :cap_egress)
    AND (:cap_seconds = 0 OR {now} - mustcall_account.started < :cap_seconds) RETURNING running"""
)
ACCOUNT_MOVE = Statement(
    f"""INSERT INTO mustcall_account (session, started, cost, tokens, calls, egress, estimated, held_cost, held_tokens,
    held_calls, held_egress, running, updated)
    VALUES (:session, {{now}}, :cost, :tokens, :calls, :egress, :estimated, 0, 0, 0, 0, 0, {{now}})
    ON CONFLICT (session) DO UPDATE SET cost = mustcall_account.cost + excluded.cost,
    tokens = mustcall_account.tokens + excluded.tokens, calls = mustcall_account.calls + excluded.calls,
    egress = mustcall_account.egress + excluded.egress,
    estimated = {{greatest}}(mustcall_account.estimated, excluded.estimated), {_FREE},
    running = {{greatest}}(0, mustcall_account.running - :ended), updated = excluded.updated"""
)
ACCOUNT_GET = Statement(
    f"SELECT {', '.join(TABLES['account'])}, {{now}} FROM mustcall_account WHERE session = :session"
)
ACCOUNT_LIST = Statement(
    f"SELECT {', '.join(TABLES['account'])}, {{now}} FROM mustcall_account ORDER BY updated DESC LIMIT :most"
)
HOST_PUT = Statement(
    """INSERT INTO mustcall_host (session, host) SELECT :session, :host
    FROM (SELECT COUNT(*) AS used FROM mustcall_host WHERE session = :session) AS hosts
    WHERE :most = 0 OR used < :most ON CONFLICT DO NOTHING"""
)
HOST_GET = Statement("SELECT host FROM mustcall_host WHERE session = :session AND host = :host")

# Breakers and facts.

BREAKER_GET = Statement(
    "SELECT name, state, failures, since, probing, version, {now} FROM mustcall_breaker WHERE name = :name"
)
BREAKER_ALL = Statement("SELECT name, state, failures, since, probing, version, {now} FROM mustcall_breaker")
BREAKER_MAKE = Statement(
    """INSERT INTO mustcall_breaker (name, state, failures, since, probing, version)
    VALUES (:name, :state, :failures, :since, :probing, 1) ON CONFLICT (name) DO NOTHING RETURNING version"""
)
BREAKER_MOVE = Statement(
    """UPDATE mustcall_breaker SET state = :state, failures = :failures, since = :since, probing = :probing,
    version = version + 1 WHERE name = :name AND version = :version RETURNING version"""
)
NOW = Statement("SELECT {now}")
FACT_PUT = Statement(
    """INSERT INTO mustcall_fact (upstream, model, field, tenant, value, note, seen, first, at)
    VALUES (:upstream, :model, :field, :tenant, :value, :note, :seen, :first, {now})
    ON CONFLICT (upstream, model, field, tenant)
    DO UPDATE SET value = excluded.value, note = excluded.note, seen = excluded.seen, first = excluded.first,
    at = excluded.at"""
)
FACT_LIST = Statement(
    """SELECT upstream, model, field, tenant, value, note, seen, first, at FROM mustcall_fact WHERE at >= :since
    ORDER BY upstream, model, field, tenant"""
)
FACT_FORGET = Statement(
    """DELETE FROM mustcall_fact WHERE (:upstream = '' OR upstream = :upstream) AND (:model = '' OR model = :model)
    AND (:tenant = '' OR tenant = :tenant) RETURNING field"""
)
TALLY_ADD = Statement(
    """INSERT INTO mustcall_tally (upstream, model, subject, tenant, made, missed, first, last)
    VALUES (:upstream, :model, :subject, :tenant, :made, :missed, :first, :last)
    ON CONFLICT (upstream, model, subject, tenant) DO UPDATE SET
    made = excluded.made + CASE WHEN mustcall_tally.last < :before THEN 0 ELSE mustcall_tally.made END,
    missed = excluded.missed + CASE WHEN mustcall_tally.last < :before THEN 0 ELSE mustcall_tally.missed END,
    first = CASE WHEN mustcall_tally.last < :before THEN excluded.first ELSE mustcall_tally.first END,
    last = {greatest}(mustcall_tally.last, excluded.last)"""
)
TALLY_LIST = Statement(
    """SELECT upstream, model, subject, tenant, made, missed, first, last FROM mustcall_tally WHERE last >= :since
    ORDER BY upstream, model, subject, tenant"""
)
TALLY_FORGET = Statement(
    """DELETE FROM mustcall_tally WHERE (:upstream = '' OR upstream = :upstream) AND (:model = '' OR model = :model)
    AND (:tenant = '' OR tenant = :tenant) RETURNING subject"""
)
TALLY_EXPIRE = Statement("DELETE FROM mustcall_tally WHERE last < :before")
FACT_EXPIRE = Statement("DELETE FROM mustcall_fact WHERE at < :before")
MEASURED_PUT = Statement(
    """INSERT INTO mustcall_measured (endpoint, wire, model, upstream, profile, report, at, tried)
    VALUES (:endpoint, :wire, :model, :upstream, :profile, :report, {now}, {now})
    ON CONFLICT (endpoint, wire, model) DO UPDATE SET upstream = excluded.upstream, profile = excluded.profile,
    report = excluded.report, at = excluded.at, tried = excluded.tried"""
)
MEASURED_LIST = Statement(
    """SELECT endpoint, wire, model, upstream, profile, report, at, tried FROM mustcall_measured
    ORDER BY endpoint, wire, model"""
)
MEASURED_CLAIM = Statement(
    """INSERT INTO mustcall_measured (endpoint, wire, model, upstream, profile, report, at, tried)
    VALUES (:endpoint, :wire, :model, :upstream, :empty, :empty, 0, {now})
    ON CONFLICT (endpoint, wire, model) DO UPDATE SET tried = excluded.tried
    WHERE mustcall_measured.tried <= {now} - :every RETURNING tried"""
)
MEASURED_FORGET = Statement(
    """DELETE FROM mustcall_measured WHERE (:upstream = '' OR upstream = :upstream)
    AND (:model = '' OR model = :model) RETURNING model"""
)

# Keeping.

_ENDED = "('done', 'failed', 'cancelled')"


def _prune(table: str, which: str, key: str = "id", order: str = "") -> Statement:
    """Return the statement that removes up to `most` rows from before a time; rows another replica removes are left."""
    chosen = f"SELECT {key} FROM mustcall_{table} WHERE {which} < :before {order} LIMIT :most {{skip}}"
    given = "id" if key == "id" else "1"
    return Statement(f"DELETE FROM mustcall_{table} WHERE {key} IN ({chosen}) RETURNING {given}")


def _prune_of(table: str, parent: str) -> Statement:
    """Return the statement that removes what belongs to many that were removed."""
    one = f"DELETE FROM mustcall_{table} WHERE {parent}"
    return Statement(f"{one} = :id", f"{one} IN (SELECT id FROM json_to_recordset(:rows) AS given (id text))")


PRUNE_TURNS = _prune("turn", "at", order="ORDER BY at")
PRUNE_ATTEMPTS = _prune_of("attempt", "turn")
PRUNE_CONVERSATIONS = _prune("conversation", "updated", order="ORDER BY updated")
PRUNE_RESPONSES = Statement("DELETE FROM mustcall_response WHERE conversation = :id RETURNING id")
PRUNE_ITEMS = _prune_of("item", "response")
PRUNE_HOLDERS = _prune("holder", "at", order="ORDER BY at")
PRUNE_RUNS = _prune("run", f"status IN {_ENDED} AND updated")
PRUNE_EVENTS = _prune_of("event", "run")
PRUNE_CHARGES = _prune("charge", "settled = 1 AND created", "{row}")
PRUNE_ACCOUNTS = Statement(
    """DELETE FROM mustcall_account WHERE session IN (SELECT session FROM mustcall_account
    WHERE running = 0 AND updated < :before LIMIT :most {skip}) RETURNING session"""
)
PRUNE_HOSTS = _prune_of("host", "session")
STORED_BYTES = Statement(
    """SELECT (SELECT COALESCE(SUM(length(request) + length(reply) + 400), 0) FROM mustcall_turn)
    + (SELECT COALESCE(SUM(length(input) + length(body) + length(settings) + 400), 0) FROM mustcall_response)
    + (SELECT COALESCE(SUM(length(data) + 200), 0) FROM mustcall_event)"""
)
OLDEST = Statement(
    f"""SELECT {{now}} - MIN(at) FROM (SELECT MIN(at) AS at FROM mustcall_turn
    UNION ALL SELECT MIN(updated) FROM mustcall_conversation
    UNION ALL SELECT MIN(updated) FROM mustcall_run WHERE status IN {_ENDED}) AS oldest"""
)

COUNT = {table: Statement(f"SELECT COUNT(*) FROM mustcall_{table}") for table in TABLES}
#: What tells the rows of a table apart, in the order in which they go out.
KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("run", "event"), ("seq",)),
    **dict.fromkeys(("conversation", "response", "holder", "turn"), ("id",)),
    "item": ("id", "response"),
    "attempt": ("turn", "number"),
    "account": ("session",),
    "charge": ("session", "turn", "step", "attempt"),
    "host": ("session", "host"),
    "breaker": ("name",),
    "fact": ("upstream", "model", "field", "tenant"),
    "tally": ("upstream", "model", "subject", "tenant"),
    "measured": ("endpoint", "wire", "model"),
}


def _export(table: str, *, goes_on: bool) -> Statement:
    """Return the statement for a page of a table, each row with its key behind it; `goes_on`: after a key."""
    keys = ", ".join(KEYS[table])
    after = f"WHERE ({keys}) > ({', '.join(f':{key}' for key in KEYS[table])})" if goes_on else ""
    columns = ", ".join(TABLES[table])
    return Statement(f"SELECT {columns}, {keys} FROM mustcall_{table} {after} ORDER BY {keys} LIMIT :most")


EXPORT = {table: (_export(table, goes_on=False), _export(table, goes_on=True)) for table in TABLES}
EVENT_IMPORT = Statement(
    """INSERT INTO mustcall_event (run, step, attempt, kind, fence, data, at)
    VALUES (:run, :step, :attempt, :kind, :fence, :data, :at) ON CONFLICT DO NOTHING"""
)
IMPORT = {table: _insert(table, ignore=True) for table in TABLES}

MIGRATIONS_MAKE = Statement(
    """CREATE TABLE IF NOT EXISTS mustcall_migration (
    number {int} PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied {real} NOT NULL)"""
)
MIGRATIONS_LIST = Statement("SELECT name, checksum FROM mustcall_migration ORDER BY number")
MIGRATION_NOTE = Statement(
    "INSERT INTO mustcall_migration (number, name, checksum, applied) VALUES (:number, :name, :checksum, {now})"
)
