"""Order that is enforced: no transfer before the customer is verified, no answer before the transfer is logged.

The model here is scripted to do it wrong: it transfers first, and it answers too early. Neither gets through.
"""

import os

from mustcall import Agent, Upstream, tool
from mustcall.testing import Call, ScriptedModel


@tool
def verify(customer: str) -> str:
    """Verify a customer."""
    return f"{customer} is verified"


@tool(prerequisites=["verify"])
def transfer(customer: str, euros: int) -> str:
    """Transfer an amount."""
    return f"{euros} euros went to {customer}"


@tool(prerequisites=["transfer"])
def write_log(text: str) -> str:
    """Write what was done into the log."""
    return f"logged: {text}"


def upstream() -> Upstream:
    """Return the model: the one that was named, else one that keeps to a script."""
    where = os.environ.get("MUSTCALL_EXAMPLE")
    if where is not None:
        return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))
    pay = Call("transfer", {"customer": "Ada", "euros": 20})
    early, log = "It is paid.", Call("write_log", {"text": "20 euros to Ada"})
    return ScriptedModel([pay, Call("verify", {"customer": "Ada"}), pay, early, log, "Paid and logged."])


def main() -> None:
    """Pay an invoice."""
    agent = Agent(upstream(), tools=[verify, transfer, write_log], required_steps=["write_log"])
    result = agent.run_sync("Pay Ada 20 euros.")
    for call in result.calls:
        print(f"{call.name}: {call.status} ({call.result})")
    print("answer:", result.text)


if __name__ == "__main__":
    main()
