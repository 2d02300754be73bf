"""A call that costs money is asked about first. What is not approved does not run, and the model is told."""

import os
import sys

from mustcall import Agent, Options, ToolCall, Upstream, tool

LIMIT = 100


def approve(call: ToolCall) -> bool:
    """Let small sums pass; ask a person about large ones, and say no where there is none."""
    amount: int = call.arguments["amount"]
    if amount <= LIMIT:
        return True
    return sys.stdin.isatty() and input(f"Pay {amount} euros? [y/N] ").strip().lower() == "y"


@tool(approve=approve, side_effect=True)
def pay_invoice(amount: int) -> str:
    """Pay an invoice of an amount in euros."""
    return f"paid {amount} euros"


def main() -> None:
    """Pay one invoice below the limit and one above it."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:")
    model = os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local")
    agent = Agent(Upstream(where, model=model), tools=[pay_invoice], options=Options(max_tokens=60))
    for amount in (20, 5000):
        result = agent.run_sync(f"Pay the invoice of {amount} euros.", force="pay_invoice")
        for call in result.calls:
            print(f"{call.name}({call.call.arguments_json}): {call.status}")


if __name__ == "__main__":
    main()
