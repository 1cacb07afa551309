"""An approver in the terminal: what leaves the sandbox waits for a person's answer; no answer is a no."""

from anyio import to_thread

from handrail import ApprovalRequest, Decision, Session, run_sync, tool

QUESTION = "Run it? [y]es, [a]lways, or a reason why not: "
SENT: list[str] = []


@tool(risk="high", effects=["reaches_out"])
def send(to: str, text: str) -> str:
    """Send a message (here: only to a list)."""
    SENT.append(f"{to}: {text}")
    return "sent"


async def approver(request: ApprovalRequest) -> Decision:
    """Show the request, which Handrail wrote from the arguments, and read the answer."""
    print(request.text)
    print(f"({request.reason}; always would allow {request.suggested_rule})")
    try:  # in a thread, so that other calls go on meanwhile; the call's clock is paused
        answer = await to_thread.run_sync(input, QUESTION, abandon_on_cancel=True)
    except EOFError:
        print()
        return Decision.deny("nobody is there")
    match answer.strip().lower():
        case "y" | "yes":
            return Decision.approve()
        case "a" | "always":
            return Decision.remember()
        case _:
            return Decision.deny(answer)


async def main() -> None:
    async with Session([send], approver=approver) as session:
        for text in ("hello", "goodbye"):
            result = await session.call("send", {"to": "ann", "text": text})
            print("->", result.value if result.ok else result.message)
    print("sent:", SENT)


run_sync(main)
# > send
# >   to: ann
# >   text: hello
# > (send (reaches_out) is not confined by a sandbox; always would allow send(ann))
# > Run it? [y]es, [a]lways, or a reason why not:
# > -> The user did not allow send: nobody is there
# > send
# >   to: ann
# >   text: goodbye
# > (send (reaches_out) is not confined by a sandbox; always would allow send(ann))
# > Run it? [y]es, [a]lways, or a reason why not:
# > -> The user did not allow send: nobody is there
# > sent: []
