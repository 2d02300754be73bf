"""Every error mustcall raises on purpose, in one tree.

    MustcallError
    ├── CallerError                 the caller's fault
    │   ├── InvalidRequest          400  not JSON, wrong type, missing field
    │   ├── UnsupportedFeature      400  legal on the caller's wire, impossible on the upstream's
    │   ├── Unauthorized            401  no key, or a wrong one
    │   ├── ForcedToolMissing       400  the forced tool is not on offer, or locked off
    │   ├── ForeignOrigin           403  a web page that is not on the list
    │   ├── UnknownModel            404  no route serves the model
    │   ├── UnknownRoute            404  no such path
    │   ├── UnknownState            404  a response, item or thread that is not kept, or not for this caller
    │   ├── WrongMethod             405  the path takes another method
    │   └── BodyTooLarge            413  over the limit
    ├── GatewayBusy                 503  the concurrency limit is reached, or the gateway is stopping
    ├── ConfigError                 500  the configuration cannot be used
    ├── FetchFailed                 500  weights or benchmark data could not be fetched
    ├── ToolError                   500  a tool's own word for the model on what went wrong; stays inside a run
    │   └── ToolRefused             500  the tool will not do it: a policy says no
    ├── RoleFailed                  502  a role that a coordinated answer cannot do without gave no usable answer
    ├── QuorumMissed                502  too few critics of a coordinated answer gave a usable one
    ├── BudgetSpent                 429  a cap on cost, tokens, calls or time is reached; no upstream call was made
    ├── BreakerOpen                 503  the upstream failed repeatedly, its circuit is open; no call was made
    ├── LedgerError                 500  the store of runs, responses and traces did not do its part
    │   ├── LedgerUnavailable       503  it cannot be reached, or did not answer in time
    │   ├── LedgerFull              503  there is no room to write
    │   ├── LedgerReadOnly          503  it may not be written
    │   ├── LedgerMismatch          500  it was made by a newer version, or by another build
    │   ├── LedgerBroken            500  the file is damaged, or is no ledger
    │   ├── FenceLost               409  the run belongs to another owner now, or has ended
    │   ├── RunBusy                 409  another process is carrying the run out
    │   ├── UnknownRun              404  there is no run of that name
    │   ├── UnknownTurn             404  there is no turn of that name
    │   ├── ContentsNotKept         409  the turn is there, what was said in it is not
    │   └── AlreadyRecorded         409  the step was already written by somebody else
    ├── UpstreamError               the upstream's fault
    │   ├── UpstreamRejected        (its own status)  the upstream refused the request
    │   ├── ForcedToolRefused       400  the upstream refuses the tool that the request demands
    │   ├── UpstreamRedirected      502  the upstream answers elsewhere; redirects are not followed
    │   ├── UpstreamUnavailable     502  no connection, reset, cut stream
    │   ├── UpstreamTimeout         504  no answer in time
    │   └── UpstreamGarbage         502  an answer that is not the wire's
    └── ModelError                  502  the model's fault: every attempt failed the contract (chat 422, responses 400)
        ├── TextToolCallError       calls came as text
        ├── PhantomCall             the finish said calls, there were none
        ├── ForceUnmet              the demanded tool was not called
        ├── UnknownToolCalled       a tool that is not on offer was called
        ├── BadArguments            arguments that do not fit the tool's schema
        ├── StructuredOutputError   an answer that does not fit the schema asked for
        ├── TruncatedReply          cut off before it was complete
        ├── EmptyReply              nothing was said
        ├── ThinkingOnly            nothing but reasoning came
        ├── LoopBlocked             the same call again and again
        └── StarvedPrompt           the server cut the prompt silently

Each has a stable `code`, an HTTP `status`, `retryable`, and a message that names the value and the fix. Any other
exception that leaves the engine is a bug.
"""

from mustcall.core.errors.caller import (
    BodyTooLarge,
    CallerError,
    ForcedToolMissing,
    ForeignOrigin,
    InvalidRequest,
    Unauthorized,
    UnknownModel,
    UnknownRoute,
    UnknownState,
    UnsupportedFeature,
    WrongMethod,
)
from mustcall.core.errors.ledger import (
    AlreadyRecorded,
    ContentsNotKept,
    FenceLost,
    LedgerBroken,
    LedgerError,
    LedgerFull,
    LedgerMismatch,
    LedgerReadOnly,
    LedgerUnavailable,
    RunBusy,
    UnknownRun,
    UnknownTurn,
)
from mustcall.core.errors.model import (
    BadArguments,
    EmptyReply,
    ForceUnmet,
    LoopBlocked,
    ModelError,
    PhantomCall,
    StarvedPrompt,
    StructuredOutputError,
    TextToolCallError,
    ThinkingOnly,
    TruncatedReply,
    UnknownToolCalled,
)
from mustcall.core.errors.own import (
    BreakerOpen,
    BudgetSpent,
    ConfigError,
    FetchFailed,
    GatewayBusy,
    QuorumMissed,
    RoleFailed,
    ToolError,
    ToolRefused,
)
from mustcall.core.errors.root import ErrorInfo, MustcallError
from mustcall.core.errors.upstream import (
    ForcedToolRefused,
    UpstreamError,
    UpstreamGarbage,
    UpstreamRedirected,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)

__all__ = [
    "AlreadyRecorded",
    "BadArguments",
    "BodyTooLarge",
    "BreakerOpen",
    "BudgetSpent",
    "CallerError",
    "ConfigError",
    "ContentsNotKept",
    "EmptyReply",
    "ErrorInfo",
    "FenceLost",
    "FetchFailed",
    "ForceUnmet",
    "ForcedToolMissing",
    "ForcedToolRefused",
    "ForeignOrigin",
    "GatewayBusy",
    "InvalidRequest",
    "LedgerBroken",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "LedgerReadOnly",
    "LedgerUnavailable",
    "LoopBlocked",
    "ModelError",
    "MustcallError",
    "PhantomCall",
    "QuorumMissed",
    "RoleFailed",
    "RunBusy",
    "StarvedPrompt",
    "StructuredOutputError",
    "TextToolCallError",
    "ThinkingOnly",
    "ToolError",
    "ToolRefused",
    "TruncatedReply",
    "Unauthorized",
    "UnknownModel",
    "UnknownRoute",
    "UnknownRun",
    "UnknownState",
    "UnknownToolCalled",
    "UnknownTurn",
    "UnsupportedFeature",
    "UpstreamError",
    "UpstreamGarbage",
    "UpstreamRedirected",
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamUnavailable",
    "WrongMethod",
]
