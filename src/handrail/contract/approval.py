"""An approval: the request to a person, and the decisions they can make."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from handrail.misuse import nearest, refuse

Risk = Literal["safe", "high", "critical"]
Effect = Literal["reads", "writes", "executes", "reaches_out", "spends"]
Answer = Literal["approve", "remember", "edit", "deny", "skip", "defer"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Rendered by Handrail from the arguments, never by the model. A decision applies to exactly these fields.

    Example:
        ```python
        def ask(request: ApprovalRequest) -> Decision:
            print(request.reason)
            return Decision.approve()

        @tool(effects=["reaches_out"])
        def publish(text: str) -> str:
            "Publish a text."
            return "published"

        async with Session([publish], approver=ask) as session:
            print((await session.call("publish", {"text": "hello"})).value)
        #> publish (reaches_out) is not confined by a sandbox
        #> published
        ```
    """

    id: str
    call_id: str
    tool: str
    risk: Risk
    effects: frozenset[Effect]
    arguments: Mapping[str, Any]
    arguments_hash: str
    text: str
    """The call as plain text of at most 40 lines, with tabs, control and bidi characters made visible."""
    repairs: tuple[str, ...]
    """Changes that preflight made: each value before and after."""
    reason: str
    """Why approval is needed."""
    suggested_rule: str
    """The exact rule that `Decision.remember()` would add."""
    sandbox: str
    expires_at: float
    """End of the wait for an answer, in seconds since the epoch; later answers are ignored."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The person's answer. Create it with one of the six class methods.

    Example:
        ```python
        print(Decision.deny("Not in this project.").message)
        print(Decision.edit({"text": "bye"}).arguments)
        #> Not in this project.
        #> {'text': 'bye'}
        ```
    """

    verdict: Answer
    arguments: Mapping[str, Any] | None = None
    message: str = ""
    by: str = ""
    """The door that the answer came through: terminal, web, attached; for the transcript."""

    def __post_init__(self) -> None:
        if self.verdict not in get_args(Answer):
            refuse(
                "Decision.verdict", self.verdict, f"Decision.approve(); {nearest(str(self.verdict), get_args(Answer))}"
            )
        if self.arguments is not None and not isinstance(self.arguments, Mapping):
            refuse("Decision.arguments", self.arguments, "all of the arguments: Decision.edit({'command': 'ls'})")
        if not isinstance(self.message, str):
            refuse("Decision.message", self.message, "a text: Decision.deny('not in this project')")

    @classmethod
    def approve(cls) -> "Decision":
        """Run the call once."""
        return cls("approve")

    @classmethod
    def remember(cls) -> "Decision":
        """Run the call, and add the suggested rule for the rest of the session."""
        return cls("remember")

    @classmethod
    def edit(cls, arguments: Mapping[str, Any]) -> "Decision":
        """Run the call with these arguments, after preflight and the policy have checked them."""
        return cls("edit", arguments=arguments)

    @classmethod
    def deny(cls, message: str = "") -> "Decision":
        """Do not run the call; tell the model why."""
        return cls("deny", message=message)

    @classmethod
    def skip(cls) -> "Decision":
        """Do not run the call; give no reason."""
        return cls("skip")

    @classmethod
    def defer(cls) -> "Decision":
        """End the call without running it, and ask later: `Session.call(…, approved=arguments_hash)` then runs it."""
        return cls("defer")


Approver = Callable[[ApprovalRequest], Awaitable[Decision] | Decision]
"""A function that answers requests: `async def`, or `def`, which runs in a thread. Raises Unavailable if nobody can.

May carry `.wait`, the seconds to wait for an answer: 300, or 55 on a detached channel.

Example:
    ```python
    def only_short(request: ApprovalRequest) -> Decision:
        return Decision.approve() if len(request.arguments["text"]) < 10 else Decision.deny("Too long.")

    @tool(effects=["reaches_out"])
    def publish(text: str) -> str:
        "Publish a text."
        return "published"

    approver: Approver = only_short
    async with Session([publish], approver=approver) as session:
        print((await session.call("publish", {"text": "hello"})).value)
        print((await session.call("publish", {"text": "a long text"})).kind)
    #> published
    #> user_denied
    ```
"""
