"""Ask the model, run its calls, append the results, repeat; every call has its one result before the next request."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from handrail.agent.outcome import LoopHost, Outcome, Reason
from handrail.agent.setup import make_session, open_model
from handrail.agent.watch import watch
from handrail.contract.approval import Approver
from handrail.contract.call import Call
from handrail.contract.event import Event
from handrail.contract.limits import Budget
from handrail.contract.model import Message, Model, ModelFailed, TextDelta, ThinkingDelta, Turn, Usage
from handrail.contract.result import Failure, Result
from handrail.policy.policy import Policy
from handrail.session.session import Session
from handrail.toolkit.toolbox import Toolbox, ToolLike

ROUNDS = 64


class Agent:
    """A model and a session. `run` may be called again: the conversation goes on."""

    def __init__(
        self, model: str | Model, *, tools: Iterable[ToolLike] | Toolbox = (), sandbox: Any = None,
        session: Session | None = None, policy: Policy = Policy(), approver: Approver | None = None,
        budget: Budget = Budget(), rounds: int = ROUNDS, system: str = "",
    ) -> None:  # fmt: skip
        self.model = open_model(model)
        self.session = make_session(session, tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget)
        self.rounds, self.system = rounds, system
        self.messages: list[Message] = []
        self.usage = Usage()

    async def run(self, prompt: str) -> Outcome:
        """Work until the model is done, or a limit is reached. Only a cancellation raises."""
        reason: Reason = "cancelled"
        text = ""
        self.session.begin_run()
        around = self.session.host.outer
        self.session.host.outer = host = LoopHost(around)
        self.session.emit("run_started", data={"prompt": prompt})
        self.messages.append(Message("user", prompt))
        try:
            reason, text = await self._rounds(host)
        finally:
            self.session.host.outer = around
            self.session.emit("run_ended", data={"reason": reason, "text": text})
        return Outcome(reason, text, session_id=self.session.id, usage=self.usage)

    def stream(self, prompt: str) -> AsyncIterator[Event]:
        """The same, as events while they happen; the last one is `run_ended`. Leaving it early ends the run."""
        return watch(self.session, self.run, prompt)

    async def _rounds(self, host: LoopHost) -> tuple[Reason, str]:
        for _ in range(self.rounds):
            try:
                turn = await self._ask()
            except Exception as error:  # noqa: BLE001 - whatever a model's client raises ends the run, not the program
                return "model_error", f"{type(error).__name__}: {error}"
            self.messages.append(Message("assistant", turn.text, turn.calls))
            if not turn.calls:
                return "done", turn.text
            results = await self._answer(turn.calls)
            if host.ended:
                return host.ended
            if any(not result.ok and result.kind == "budget_exhausted" for result in results):
                return "budget", turn.text or "The budget of this run is used up."
        return "round_limit", f"The model was asked {self.rounds} times and was not done."

    async def _ask(self) -> Turn:
        turn: Turn | None = None
        async for event in self.model.ask(self.messages, self.session.schemas("mcp"), system=self.system):
            if isinstance(event, Turn):
                turn = event
            elif isinstance(event, TextDelta | ThinkingDelta):
                self.session.emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": event.text})
        if turn is None:
            raise ModelFailed("the model's answer broke off before it was whole")
        self.usage += turn.usage
        calls = tuple(turn.calls)
        if turn.stop == "max_tokens" and calls:  # the model was cut off inside its last call
            calls = (*calls[:-1], replace(calls[-1], cut=True))
        return replace(turn, calls=calls)

    async def _answer(self, calls: tuple[Call, ...]) -> list[Result]:
        came: dict[int, Result] = {}
        lost = Failure("cancelled", "The run was cancelled before this call answered; it may have had effects.")
        try:
            return await self.session.call_all(calls, into=came)
        finally:
            self.messages.append(Message("tool", results=tuple(came.get(n, lost) for n in range(len(calls)))))
