"""A shell line as a page prints it, in which `mustcall` is forked from the process that has its imports.

The shell finds a program called `mustcall` first on its path. It is a small one that passes its arguments, folder,
environment and standard streams to that process, hands on the signals it gets and ends as the command does; it runs as
this file. What `support.warm` says of forked commands holds for these.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType


def _main(orders: int, counted: int, arguments: list[str]) -> int:
    """Have a command run by the process behind `orders`; return how it ended and write what it cost to `counted`."""
    handed_on = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, handed_on)  # until it is known whom to hand them to
    told, tells = os.pipe()
    order = {
        "arguments": arguments,
        "folder": os.getcwd(),  # noqa: PTH109  importing `pathlib` takes longer than all else here
        "environment": dict(os.environ),
        "session": False,
        "terminal": False,
        "lenient": True,
    }
    with socket.socket(fileno=orders) as process:
        socket.send_fds(process, [json.dumps(order).encode()], [0, 1, 2, tells])
    for file in (tells, 0, 1, 2):  # whoever reads must see the end when the command ends
        os.close(file)
    with os.fdopen(told, encoding="ascii") as lines:
        number, seconds = next(lines).split()

        def hand_on(sign: int, _frame: FrameType | None) -> None:
            os.kill(int(number), sign)

        for sign in handed_on:
            signal.signal(sign, hand_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handed_on)
        os.write(counted, f"{seconds}\n".encode())
        code, seconds = next(lines).split()
    os.write(counted, f"{seconds}\n".encode())
    return int(code)


if __name__ == "__main__":
    ended = _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    os._exit(ended)  # the standard streams are closed: there is nothing to flush
