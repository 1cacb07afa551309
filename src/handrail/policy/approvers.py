"""Approvers that any program can use: fixed answers, and answers that come later from elsewhere."""

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from time import time
from typing import Any

import anyio

from handrail.contract.approval import ApprovalRequest, Approver, Decision
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import APPROVAL_WAIT
from handrail.misuse import expect, expect_number, refuse
from handrail.threads import Work, is_async


def wait_of(approver: object) -> float:
    """Seconds that an approver has to answer. Raises HandrailError for a `wait` that is not a number of seconds."""
    return checked_wait("the approver's wait", getattr(approver, "wait", APPROVAL_WAIT), APPROVAL_WAIT)


def checked_wait(what: str, wait: Any, default: float) -> float:
    """The wait, in seconds. Raises HandrailError for anything but a number of seconds."""
    write = f"a number of seconds above 0, or leave it out for {default:g}"
    if wait is None:
        refuse(what, wait, write)
    expect_number(what, wait, write, least=0, above=True, whole=False)
    return float(wait)


async def ask(approver: Approver, request: ApprovalRequest) -> object:
    """The approver's answer, whatever it is.

    A plain function answers in a thread: the event loop goes on, and a call that ends leaves the thread behind.
    """
    if is_async(approver):
        answer: object = approver(request)
    else:
        answer = await Work(lambda: approver(request)).wait()
    return await answer if isawaitable(answer) else answer


def first_of(*approvers: Approver) -> Approver:
    """Ask all of these at once; the first answer counts, and the others are no longer asked.

    An approver that cannot ask anybody (it raises Unavailable) leaves the question to the rest.

    Example:
        ```python
        @tool(risk="high", effects=["executes"])
        def act() -> str:
            "Act."
            return "acted"

        approver = first_of(never_answers.within(60), approve_all)
        async with Session([act], policy=Policy(mode="ask"), approver=approver) as session:
            print((await session.call("act")).value)
        #> acted
        ```
    """
    if not approvers:
        raise HandrailError("first_of() was given no approver; write first_of(ask, held)")
    return _FirstOf(approvers)


class _FirstOf:
    """Several approvers as one; `wait` is the longest of theirs."""

    def __init__(self, approvers: Sequence[Approver]) -> None:
        self._approvers = approvers
        self.wait = max(wait_of(each) for each in approvers)

    async def __call__(self, request: ApprovalRequest) -> Decision:
        answers: list[object] = []
        failed: list[Exception] = []
        settled = anyio.Event()

        async def put_to(approver: Approver) -> None:
            try:
                answers.append(await ask(approver, request))
                settled.set()
            except Exception as error:  # noqa: BLE001 - one approver may fail while another answers
                failed.append(error)
                if len(failed) == len(self._approvers):
                    settled.set()

        async with anyio.create_task_group() as tasks:
            for each in self._approvers:
                tasks.start_soon(put_to, each)
            await settled.wait()
            tasks.cancel_scope.cancel()
        if not answers:
            raise next((error for error in failed if not isinstance(error, Unavailable)), failed[0])
        return answers[0]  # type: ignore[return-value]  # the gate checks that it is a Decision


async def approve_all(request: ApprovalRequest) -> Decision:
    """Approve every call.

    Example:
        ```python
        @tool(effects=["reaches_out"])
        def publish(text: str) -> str:
            "Publish a text."
            return f"published {text}"

        async with Session([publish], approver=approve_all) as session:
            print((await session.call("publish", {"text": "hello"})).value)
        #> published hello
        ```
    """
    return Decision.approve()


async def deny_all(request: ApprovalRequest) -> Decision:
    """Deny every call.

    Example:
        ```python
        @tool(effects=["reaches_out"])
        def publish(text: str) -> str:
            "Publish a text."
            return f"published {text}"

        async with Session([publish], approver=deny_all) as session:
            print((await session.call("publish", {"text": "hello"})).kind)
        #> user_denied
        ```
    """
    return Decision.deny("denied by deny_all")


class _NeverAnswers:
    """An approver that never answers; `wait` is how many seconds Handrail waits for it."""

    def __init__(self, wait: float) -> None:
        self.wait = wait

    async def __call__(self, request: ApprovalRequest) -> Decision:
        await anyio.sleep_forever()
        return Decision.skip()

    def within(self, wait: float) -> "_NeverAnswers":
        """The same approver with another wait."""
        return _NeverAnswers(wait)


never_answers = _NeverAnswers(0.05)
"""An approver that never answers, so that tests can see a request expire, after 0.05 seconds.

Example:
    ```python
    @tool(effects=["reaches_out"])
    def publish(text: str) -> str:
        "Publish a text."
        return f"published {text}"

    async with Session([publish], approver=never_answers) as session:
        print((await session.call("publish", {"text": "hello"})).kind)
    #> approval_timeout
    ```
"""


def edit_with(arguments: Mapping[str, Any]) -> Approver:
    """Approve every call with these arguments instead of its own.

    Example:
        ```python
        @tool(effects=["reaches_out"])
        def publish(text: str) -> str:
            "Publish a text."
            return f"published {text}"

        async with Session([publish], approver=edit_with({"text": "bye"})) as session:
            print((await session.call("publish", {"text": "hello"})).value)
        #> published bye
        ```
    """

    async def edit(request: ApprovalRequest) -> Decision:
        return Decision.edit(arguments)

    return edit


class HeldApprovals:
    """An approver whose answers come from elsewhere: a web page, a test. An answer counts once, for its own request.

    Example:
        ```python
        import anyio

        @tool(effects=["reaches_out"])
        def publish(text: str) -> str:
            "Publish a text."
            return f"published {text}"

        held = HeldApprovals()
        async with Session([publish], approver=held) as session, anyio.create_task_group() as group:
            group.start_soon(session.call, "publish", {"text": "hello"})
            request = await held.next()
            print(request.tool, held.answer(request.id, Decision.approve()))
        #> publish True
        ```
    """

    def __init__(self, wait: float = APPROVAL_WAIT) -> None:
        self.wait = wait
        wait_of(self)
        self.pending: dict[str, ApprovalRequest] = {}
        self._answers: dict[str, Decision] = {}
        self._woken: dict[str, anyio.Event] = {}
        self._asked = anyio.Event()

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.pending[request.id] = request
        self._woken[request.id] = anyio.Event()
        self._asked.set()
        self._asked = anyio.Event()
        try:
            await self._woken[request.id].wait()
            return self._answers.pop(request.id)
        finally:
            self.pending.pop(request.id, None)
            self._answers.pop(request.id, None)
            del self._woken[request.id]

    def answer(self, id: str, decision: Decision, *, arguments_hash: str | None = None) -> bool:
        """Whether the answer counted: not if the request is settled or expired, or showed other arguments."""
        expect("the answer", decision, Decision, "a Decision such as Decision.approve()")
        request = self.pending.get(id)
        if request is None or time() > request.expires_at:
            return False
        if arguments_hash is not None and arguments_hash != request.arguments_hash:
            return False
        del self.pending[id]
        self._answers[id] = decision
        self._woken[id].set()
        return True

    def cancel(self, id: str) -> bool:
        """Withdraw a request: it counts as skipped. Whether it was still pending."""
        return self.answer(id, Decision.skip())

    async def next(self) -> ApprovalRequest:
        """The oldest pending request, as soon as there is one."""
        while not self.pending:
            await self._asked.wait()
        return next(iter(self.pending.values()))
