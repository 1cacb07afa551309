"""A chat with a provider that answers in pieces: what came is shown, and the person is never locked out."""

import json
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from handrail.contract.model import SUMMARISE
from tests.cli.terminal import begun, plain, say, terminal
from tests.models.wire import STREAM, Seen, Wire, events, serving


def piece(text: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if text is None else {"role": "assistant", "content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if text is None else None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
    """Two whole paragraphs and a part of a third; the rest once it may go on."""
    begin = ["# First\n\nOne **whole** paragraph.\n\n", "unfinished \x1b]0;owned\x07\x1b[2J part"]
    out.write(STREAM + events(*map(piece, begin), end=""))
    out.flush()
    wire.release.wait()
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
    out.write(events(piece(" and its end."), piece(usage=usage)))


LONG = "A long answer. " * 800
"""More than half of what a model on this machine can read."""


def summaries(seen: Seen, out: BinaryIO, wire: Wire) -> None:
    """A long answer first. The first summary never comes; what is asked after it is answered at once."""
    text = SUMMARISE in json.dumps(seen.body["messages"])
    if text and not wire.release.is_set():
        wire.release.wait()
        return
    said = "They greeted." if text else LONG if len(wire.seen) == 1 else "Short."
    out.write(STREAM + events(piece(said), piece()))


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_control_c_ends_a_turn_that_waits_for_a_summary_and_loses_nothing(
    term: str, work: Path, home: dict[str, str]
) -> None:
    with serving(summaries) as wire:
        env = {**home, "OPENAI_API_KEY": "sk-of-a-test", "TERM": term}
        with terminal("chat", "--model", f"openai-chat:m@{wire.url}/v1", cwd=work, env=env) as screen:
            begun(screen)
            say(screen, "Go")
            screen.wait_shown("tokens ")
            begun(screen)
            say(screen, "Again")
            while len(wire.seen) < 2:
                time.sleep(0.05)
            screen.press_control_c()
            screen.wait_shown("The run ended: cancelled")
            begun(screen)
            wire.release.set()
            say(screen, "More")
            screen.wait_shown("gave way to a summary")
            screen.wait_shown("Short.")
            begun(screen)
            screen.press_control_d()
            assert screen.end() == 0
    assert ("Traceback" in screen.seen, SUMMARISE in json.dumps(wire.seen[1].body)) == (False, True)
    shown = plain("sessions", "show", "last", cwd=work, env=home).stdout
    assert [line for line in shown.splitlines() if line.startswith("> ")] == ["> Go", "> Again", "> More"]
    assert "A long answer." in shown


def test_an_answer_is_shown_while_it_comes_through_a_resize_an_interrupt_and_a_queued_message(
    work: Path, home: dict[str, str]
) -> None:
    with serving(answer) as wire:
        env = {**home, "OPENAI_API_KEY": "sk-of-a-test"}
        with terminal("chat", "--model", f"openai-chat:m@{wire.url}/v1", cwd=work, env=env) as screen:
            begun(screen)
            say(screen, "Go")
            screen.wait_shown("unfinished ")
            screen.wait_shown("One whole paragraph.")
            screen.wait_shown("the model writes")
            screen.resize(40)
            screen.wait_until(lambda: "the model writes" in screen.shown[-200:], "what it does, in the narrow window")
            screen.press_control_c()
            screen.wait_shown("The run ended: cancelled")
            screen.wait_shown("unfinished ")  # what had come is kept
            begun(screen)
            say(screen, "Again")
            screen.wait_until(lambda: screen.shown.count("unfinished ") == 2, "the second answer")
            say(screen, "More")
            screen.wait_shown("1 queued")
            wire.release.set()
            screen.wait_until(
                lambda: screen.shown.count("and its end.") == 2, "the answer, and that to what was queued"
            )
            screen.wait_shown("2,000 tokens in, 100 out")
            screen.press_control_d()
            assert screen.end() == 0
    assert ("\x1b]0;owned" in screen.seen, "\x1b[2J" in screen.seen, "Traceback" in screen.seen) == (False,) * 3
    asked = [[each["content"] for each in seen.body["messages"] if each["role"] == "user"] for seen in wire.seen]
    assert asked == [["Go"], ["Go\n\nAgain"], ["Go\n\nAgain", "More"]]  # the first turn was not answered
    shown = plain("sessions", "show", "last", cwd=work, env=home).stdout
    assert [line for line in shown.splitlines() if line.startswith("> ")] == ["> Go", "> Again", "> More"]
