"""`handrail chat`: a conversation with a model that uses the built-in tools, in this terminal."""

from functools import partial
from typing import TYPE_CHECKING

from handrail.cli._app import Command, Options, new_app, run, with_options
from handrail.cli.run import Model, Resume
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _chat
else:
    _chat = Lazy("handrail.cli._chat")


app = new_app()


@app.command(cls=Command)
@with_options
def chat(model: Model = None, resume: Resume = None, *, options: Options) -> None:
    """Talk with a model that uses the built-in tools, in a jail on the current directory.

    Type a message; Enter sends it, Alt-Enter begins a new line. What you send while it works is queued. /help lists
    the commands, !command runs a command, and @file adds a file to the message.

    Ctrl-C ends the running call, a second one the turn, a third one the program; Ctrl-D leaves. The conversation is
    stored: `handrail chat --resume last` goes on with it.
    """
    run(partial(_chat.run_chat, model, resume, options))
