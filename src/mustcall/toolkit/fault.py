"""Why a built-in tool cannot do what it was asked to, in one line that a model and a person can act on."""

__all__ = ["ToolFault"]


class ToolFault(Exception):
    """The tool ran and says no: `message` names the value and what would work. Never leaves the toolkit."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
