"""The loop: ask the model, run its calls, add their results to the conversation, repeat."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from handrail.agent.conversation import READ_AT_ONCE, Conversation
from handrail.agent.requests import ModelRequests
from handrail.agent.steering import Steer
from handrail.agent.typed_answer import SEND_BACK
from handrail.contract.errors import describe_error
from handrail.contract.model import Turn, Usage
from handrail.contract.result import Image, Result
from handrail.log import report
from handrail.misuse import expect
from handrail.session.core import SessionCore
from handrail.session.host import LoopRun
from handrail.toolkit.requests import BudgetSpent

ASK_AGAIN: Final = "Your last answer was empty. Go on with the work, or say what you have found."
Reason = Literal[
    "done", "asked_user", "round_limit", "budget", "cancelled", "model_error", "cut", "refused", "no_output"
]
End = tuple[Reason, str]
"""Why a run ended, and the text of its outcome."""
DoTask = Callable[[str, int, str, str, Sequence[str] | None, str | None], Awaitable[Result]]
"""Does one task: id of the call, number of its task, prompt, role, tools, cwd."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `text` is the model's last answer, its question to the user, or the error.

    Example:
        ```python
        async with Agent(ScriptedModel(["Hello."])) as agent:
            outcome: Outcome = await agent.run("Say hello.")
            print(outcome.reason, outcome.text)
        #> done Hello.
        ```
    """

    reason: Reason
    text: str
    session_id: str = field(default="", kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)
    output: Any = field(default=None, kw_only=True)
    """The object that `Agent(output=…)` asks for; None unless the reason is `done`."""
    store_error: str = field(default="", kw_only=True)
    """Why the store lacks the end of this run; empty if it has it, or there is no store."""


class Run(LoopRun):
    """One run of an agent: from a prompt to its Outcome."""

    def __init__(
        self, core: SessionCore, conversation: Conversation, requests: ModelRequests, *, rounds: int,
        steer: Steer | None, typed: bool, do_task: DoTask, model: str, name: str,
    ) -> None:  # fmt: skip
        self._core, self._conversation, self._requests = core, conversation, requests
        self._rounds, self._steer, self._typed = rounds, steer, typed
        self._model, self._name = model, name
        self._do_task = do_task
        self.ended: tuple[Literal["done", "asked_user"], str] | None = None
        """Set by a tool that ends the run after this round: the reason, and the text of the outcome."""
        self.output: Any = None
        """The typed answer, once there is one."""
        self._traceback = ""
        self._advice = ""
        """The last advice of `steer`."""
        self._was_empty = self._sent_back = False
        """Whether the last answer was empty; whether a text was sent back because a typed answer is wanted."""

    async def run(self, prompt: str, images: Sequence[Image]) -> Outcome:
        """Work until the model is done or a limit is reached."""
        core = self._core
        reason: Reason = "cancelled"
        text = ""
        core.begin_run()
        outer, core.run = core.run, self
        core.emit("run_started", data={"model": self._model, "rounds": self._rounds, "agent": self._name})
        try:
            kept = [await self._keep(image) for image in images]
            core.emit("user", data={"text": prompt, "images": kept})
            reason, text = await self._work()
        except Exception as error:
            reason, text = "model_error", describe_error(error)
            raise
        finally:
            core.run = outer
            text = text if core.scrubber is None else core.scrubber.text(text)
            core.emit("run_ended", data={"reason": reason, "text": text, **self._as_data()})
        if core.store_error:
            await core.settle()
        return Outcome(
            reason, text, session_id=core.id, usage=self._requests.usage, output=self.output,
            store_error=core.store_error,
        )  # fmt: skip

    async def _work(self) -> End:
        """Do the rounds: in each one the model answers, and its calls are run."""
        ask = self._requests.turn if self._core.budget.seconds is None else self._turn_in_time
        for _ in range(self._rounds):
            try:
                turn = await ask()
            except BudgetSpent as spent:
                return "budget", str(spent)
            except Exception as error:  # noqa: BLE001 - an error of the model's client ends the run, not the program
                self._traceback = report(f"The model {self._model} (session {self._core.id!r})", error)
                return "model_error", describe_error(error)
            end = await self._act(turn) if turn.calls else self._conclude(turn)
            if end is not None:
                return end
        return "round_limit", f"The model was not done after {self._rounds} rounds."

    async def _turn_in_time(self) -> Turn:
        """The model's next answer. Raises BudgetSpent, also if the run's seconds are over before it is complete."""
        clock = self._core.shared.counts.clock
        if (left := clock.left()) > 0:
            with clock.limit(left):
                return await self._requests.turn()
        raise BudgetSpent(f"The {self._core.budget.seconds:g} s of this run are used up.")

    async def _act(self, turn: Turn) -> End | None:
        """Run the calls of an answer. Returns how the run ends, if it does."""
        core, count = self._core, len(turn.calls)
        self._was_empty = False
        if count > READ_AT_ONCE:
            await self._conversation.catch_up_in_turns()
        core.shared.tokens_left = self._requests.tokens_left(count)
        results = await core.call_all(turn.calls, {})
        if turn.stop == "refused":
            return "refused", turn.text or "The model refused to go on."
        if self.output is not None:
            return "done", turn.text or self.output.model_dump_json()
        if self.ended:
            (reason, text), self.ended = self.ended, None
            return self._send_back(text) if reason == "done" and self._typed else (reason, text)
        spent = core.shared.tasks_ended
        for result in results:
            spent = spent or result.kind == "budget_exhausted"
        if spent:
            return "budget", turn.text or "The budget of this run is used up."
        if count > READ_AT_ONCE:
            await self._conversation.catch_up_in_turns()
        if self._steer is not None:
            self._advise(self._steer)
        return None

    def _conclude(self, turn: Turn) -> End | None:
        """Decide what an answer without calls means. None: the model is asked again."""
        if turn.stop == "paused":
            self._core.flush()  # the model is told of its answer, and may be a person
            return None
        if turn.stop == "refused":
            return "refused", turn.text or "The model refused to answer."
        if turn.stop == "max_tokens":
            return "cut", turn.text or "The model's answer reached its limit of tokens before it said anything."
        if self._typed:
            return self._send_back(turn.text)
        if turn.text.strip():
            return "done", turn.text
        if self._was_empty:
            return "model_error", "The model answered twice with neither text nor calls."
        self._was_empty = True
        self._tell("empty", ASK_AGAIN)
        return None

    def _send_back(self, text: str) -> End | None:
        """Ask for a typed answer in place of text, once."""
        if self._sent_back:
            return "no_output", text
        self._sent_back = True
        self._tell("no_output", SEND_BACK)
        return None

    async def start_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Do task `number` of a call."""
        return await self._do_task(call_id, number, prompt, role, tools, cwd)

    def accept(self, output: Any) -> bool:
        """Take the typed answer, if it is the first of this run."""
        if self.output is not None:
            return False
        self.output = output
        return True

    def _advise(self, steer: Steer) -> None:
        """Tell the model what `steer` says about the last results."""
        try:
            text = steer(self._conversation.state)
            if text is not None:
                expect("what it returned", text, str, "a text for the model, or return None")
        except Exception as error:  # noqa: BLE001 - it may be anybody's code; the run goes on without it
            traceback = report("The function `steer`", error)
            message = f"The function `steer` raised {describe_error(error)}; the model was told nothing."
            self._core.emit("warning", data={"message": message, "traceback": traceback})
            return
        if text and text != self._advice:  # the same advice twice in a row helps nobody
            self._tell("state", text)
        self._advice = text or ""

    def _tell(self, why: str, text: str) -> None:
        """Tell the model something as a user's message."""
        self._core.emit("steered", data={"text": text, "why": why})

    async def _keep(self, image: Image) -> str:
        """Keep a picture of the prompt. Returns its reference."""
        ref = (await self._core.artifacts.put(image.data, media_type=image.media_type)).ref
        self._core.artifacts.show(ref)
        return ref

    def _as_data(self) -> dict[str, Any]:
        """More for `run_ended`: the typed answer, and the traceback of a model's error."""
        output = {} if self.output is None else {"output": self.output.model_dump(mode="json")}
        return output | ({"traceback": self._traceback} if self._traceback else {})
