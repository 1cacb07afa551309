"""What a new user gets wrong, and what they are told. `python -m tests.journeys.mistakes` prints the table.

Each row is a mistake in a sentence, the code that makes it, and parts of the message that answers it. The code runs
with every public name, the shipped fakes and PRELUDE. Its message is that of the exception that it raises, else of the
warning that it causes, else of the Failure that it leaves in `result`.
"""

import ast
import gc
import inspect
import textwrap
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import anyio

import handrail
import handrail.testing

PRELUDE = '''
@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

@tool(risk="critical")
def drop(table: str) -> str:
    """Drop a table."""
    return "dropped"

SCHEMA = {"type": "object"}

def body(context, arguments):
    return 1
'''


class Mistake(NamedTuple):
    """One row of the table."""

    sentence: str
    code: str
    says: tuple[str, ...]


def wrong(sentence: str, code: str, *says: str) -> Mistake:
    return Mistake(sentence, textwrap.dedent(code).strip(), says)


def in_sandbox(sentence: str, code: str, *says: str) -> Mistake:
    opened = 'async with open_sandbox("memory", files={"a.txt": "x"}) as sandbox:\n'
    return Mistake(sentence, opened + textwrap.indent(textwrap.dedent(code).strip(), "    "), says)


def in_session(sentence: str, code: str, *says: str) -> Mistake:
    opened = "async with Session([add, drop]) as session:\n"
    return Mistake(sentence, opened + textwrap.indent(textwrap.dedent(code).strip(), "    "), says)


def approved_by(sentence: str, approver: str, *says: str) -> Mistake:
    call = "async with Session([drop], approver=approver) as session:\n"
    call += '    result = await session.call("drop", {"table": "x"})'
    return Mistake(sentence, f"{textwrap.dedent(approver).strip()}\n{call}", says)


def returning(sentence: str, signature: str, value: str, *says: str) -> Mistake:
    made = f'@tool\ndef f(){signature}:\n    """Answer."""\n    return {value}\n'
    return Mistake(sentence, f'{made}async with Session([f]) as session:\n    result = await session.call("f")', says)


TOOLS = [
    wrong("tools: one tool, not a list", "Session(add)", "tools is a Tool", "[add]"),
    wrong("tools: one function, not a list", "Session(len)", "tools is the function len", "[len]"),
    wrong(
        "tools: builtin_tools without parentheses", "Session(builtin_tools)", "write builtin_tools(), with parentheses"
    ),
    wrong("tools: builtin_tools in a list, not called", "Session([builtin_tools])", "call it: [*builtin_tools(), …]"),
    wrong(
        "tools: a list inside the list", "Session([builtin_tools()])", "a list is not a tool", "[*builtin_tools(), …]"
    ),
    wrong("tools: a name", 'Session("bash")', "tools is 'bash'", "builtin_tools()"),
    wrong("tools: a list of names", 'Session(["bash"])', "'bash' is the name of a tool", "builtin_tools()"),
    wrong("tools: a dict", 'Session({"add": add})', "tools is a dict", "a list of its values"),
    wrong("tools: None", "Session(None)", "tools is None", "a list of tools"),
    wrong("two tools of one name", "Session([add, add])", "two tools are called 'add'", "replace()"),
    wrong("a profile that does not exist", 'builtin_tools("readonly")', "no profile 'readonly'", "read_only"),
    wrong(
        "@tool on a method",
        """
        class Shop:
            @tool
            def price(self, item: str) -> int:
                "The price."
        """,
        "tool price is a method",
        "tool(object.price)",
        "Shop",
    ),
    wrong("@tool on a class", '@tool\nclass Shop:\n    "A shop."', "not the class Shop", "above a typed `def`"),
    wrong("@tool with a name by position", '@tool("sum")\ndef f(a: int):\n    "Add."', "write @tool(name='sum')"),
    wrong("@tool: a misspelt option", '@tool(time_out=3)\ndef f(a: int):\n    "Add."', "time_out", "mean 'timeout'?"),
    wrong("@tool: no annotation", '@tool\ndef f(a):\n    "Add."', "'a' has no annotation", "write `a: str`"),
    wrong("@tool: ctx without its type", '@tool\ndef f(ctx, a: int):\n    "Add."', "write `ctx: Context`"),
    wrong("@tool: *args", '@tool\ndef f(*a: int):\n    "Add."', "(*args)", "list[str]"),
    wrong(
        "@tool: a type without a schema",
        'class Money: ...\n\n@tool\ndef f(a: Money):\n    "Pay."',
        "parameter 'a'",
        "Money",
        "a dataclass, a TypedDict or a pydantic model",
    ),
    wrong(
        "@tool: no docstring", "@tool\ndef f(a: int):\n    return a", "tool f has no description", "write a docstring"
    ),
    wrong("Tool: lane=''", 'Tool("t", SCHEMA, body, lane="")', "tool t: lane is ''", 'such as "database"'),
    wrong("Tool: blank='no'", 'Tool("t", SCHEMA, body, blank="no")', "tool t: blank is 'no'", '"absent" or "keep"'),
    wrong("Tool: lane=5", 'Tool("t", SCHEMA, body, lane=5)', "tool t: lane is 5", 'such as "database"'),
    wrong(
        'Tool: deferred="yes"', 'Tool("t", SCHEMA, body, deferred="yes")', "tool t: deferred is 'yes'", "True or False"
    ),
    wrong('Tool: timeout="30s"', 'Tool("t", SCHEMA, body, timeout="30s")', "timeout is '30s'", "a number of seconds"),
    wrong("Tool: an unknown risk", 'Tool("t", SCHEMA, body, risk="medium")', "risk 'medium'", "safe, high, critical"),
    wrong("Tool: an unknown effect", 'Tool("t", SCHEMA, body, effects=["write"])', "effects 'write'", "writes"),
    wrong("Tool: a type as output", 'Tool("t", SCHEMA, body, output=int)', "output is the class int", "a JSON Schema"),
    wrong("Tool: parameters as a list", 'Tool("t", ["city"], body)', "parameters is a list", '"properties"'),
    wrong(
        "Tool: a name with a space", 'Tool("my tool", SCHEMA, body)', "tool name 'my tool'", "A-Z, a-z, 0-9, _ and -"
    ),
    wrong(
        "Tool: a body of one value",
        'Tool("t", SCHEMA, lambda arguments: 1)',
        "tool t: body",
        "body(context, arguments)",
    ),
    wrong(
        "Tool: a misspelt option", 'Tool("t", SCHEMA, body, output_caps=3)', "no option 'output_caps'", "'output_cap'?"
    ),
    wrong("a provider that does not exist", 'Toolbox([add]).schemas("gpt-4")', "no provider 'gpt-4'", "openai"),
    wrong("a schema of a misspelt tool", 'Toolbox([add]).schema_for("ad")', "no tool 'ad'", "did you mean 'add'?"),
]

OPENING = [
    wrong(
        "a sandbox that was not entered", "Session(sandbox=open_sandbox())", "not an open Sandbox", "`async with open_s"
    ),
    wrong(
        "sandbox: a name", 'Session(sandbox="jail")', "sandbox is 'jail'", "async with open_sandbox('jail') as sandbox:"
    ),
    wrong("an agent's sandbox: a name", 'Agent(ScriptedModel([]), sandbox="jail")', "async with open_sandbox('jail')"),
    wrong(
        "sandbox: a driver", "Session(sandbox=MemoryDriver())", "sandbox is a MemoryDriver", "async with open_sandbox("
    ),
    wrong("with, not async with", 'with open_sandbox("memory") as sandbox: ...', "write `async with`, not `with`"),
    wrong("with a session", "with Session([add]) as session: ...", "<Session ", "write `async with`, not `with`"),
    wrong("a sandbox used before `async with`", 'open_sandbox("memory").run("ls")', "not entered", "use sandbox.run"),
    wrong("a workspace by position", 'open_sandbox("/tmp")', "the driver is '/tmp'", "open_sandbox(workspace='/tmp')"),
    wrong("a misspelt driver", 'async with open_sandbox("jial"): ...', "no driver 'jial'", "did you mean 'jail'?"),
    wrong(
        "a driver that does not exist",
        'async with open_sandbox("docker"): ...',
        "no driver 'docker'",
        "host, jail, memory",
    ),
    wrong("a driver's class", "open_sandbox(MemoryDriver)", "the driver is the class MemoryDriver", "such as 'jail'"),
    wrong(
        "a misspelt option",
        'async with open_sandbox(wrokspace="/tmp"): ...',
        "'wrokspace'",
        "did you mean 'workspace'?",
    ),
    wrong("a misspelt option, before it is entered", "open_sandbox(mount=[])", "'mount'", "did you mean 'mounts'?"),
    wrong(
        "a misspelt driver, before it is entered", 'open_sandbox("jial")', "no driver 'jial'", "did you mean 'jail'?"
    ),
    wrong(
        "a misspelt option of one driver",
        'async with open_sandbox("jail", bubble_wrap="/usr/bin/bwrap"): ...',
        "the jail driver has no option 'bubble_wrap'",
        "did you mean 'bubblewrap'?",
    ),
    wrong(
        "a limit as an option", "async with open_sandbox(memory=2**30): ...", "it is a limit", "limits=Limits(memory=…)"
    ),
    wrong(
        "options beside a driver object",
        'open_sandbox(MemoryDriver(), network="full")',
        "network",
        "MemoryDriver itself",
    ),
    wrong(
        "the host driver without consent",
        'async with open_sandbox("host"): ...',
        "isolates nothing",
        "allow_weaker=True",
    ),
    wrong('allow_weaker="no"', 'open_sandbox("host", allow_weaker="no")', "allow_weaker is 'no'", "True or False"),
    wrong("mounts: a list of paths", 'open_sandbox(mounts=["/data"])', "is '/data'", "write Mount('/data')"),
    wrong("mounts: as docker writes them", 'open_sandbox(mounts=["/a:/b:ro"])', "write Mount('/a', '/b')"),
    wrong("mounts: a path", 'open_sandbox(mounts="/data")', "a list, even of one: [Mount('/data')]"),
    wrong("mounts: a dict", 'open_sandbox(mounts=[{"source": "/data"}])', "write Mount(source='/data')"),
    wrong("a mount with a mode", 'Mount("/data", "/data", "rw")', "Mount.writable is 'rw'", "writable=True"),
    wrong(
        "a mount of nothing", 'async with open_sandbox(mounts=[Mount("/no/such")]): ...', "does not exist", "/no/such"
    ),
    wrong("limits: a dict", 'open_sandbox(limits={"memory": 1000})', "limits is a dict", "write Limits(memory=1000)"),
    wrong("a limit as text", 'Limits(memory="512M")', "Limits.memory is '512M'", "512 * 1024**2"),
    wrong("a store below a file", 'Store("/etc/passwd/x.db")', "cannot be made", "/etc/passwd is not a directory"),
    wrong("a store that is nothing", "Store(None)", "Store(None)", "such as 'sessions.db'"),
    wrong("a misspelt limit", "Limits(mem=1)", "no option 'mem'", "did you mean 'memory'?"),
    wrong("env: a name with =", 'open_sandbox(env={"A=B": "1"})', "env has the name 'A=B'", "{'A': …}"),
    wrong("env: a number", 'open_sandbox(env={"PORT": 80})', "env['PORT'] is an int", "give a string"),
    wrong("env: a list", 'open_sandbox(env=["A=1"])', "env is a list", "{'NAME': 'value'}"),
    wrong("network: True", "open_sandbox(network=True)", "network is True", "network='full'"),
    wrong(
        "network: an unknown value",
        'async with open_sandbox("jail", network="host"): ...',
        "'host'",
        "give none or full",
    ),
    wrong("network: a list of hosts", 'open_sandbox(network=["example.com"])', "network is a list", "network='full'"),
    wrong("workspace: ~", 'open_sandbox(workspace="~/project")', "os.path.expanduser('~/project')"),
    wrong("workspace: missing", 'async with open_sandbox(workspace="/no/such"): ...', "create it first", "/no/such"),
    wrong("workspace: a number", "open_sandbox(workspace=3)", "workspace is 3", "the path of a directory"),
]

COMMANDS = [
    in_sandbox("a command that is a number", "await sandbox.run(3)", "A command is a string", "not 3"),
    in_sandbox("a command in two strings", 'await sandbox.run("ls", "-l")', "takes command by position", "timeout=…"),
    in_sandbox("a number in an argv", 'await sandbox.run(["head", "-n", 3])', "not 3", "write '3'"),
    in_sandbox("a timeout as text", 'await sandbox.run("ls", timeout="3")', "timeout is '3'", "a number of seconds"),
    in_sandbox("a misspelt timeout", 'await sandbox.run("ls", time_out=3)', "'time_out'", "did you mean 'timeout'?"),
    in_sandbox("a Path as cwd", 'await sandbox.run("ls", cwd=Path("src"))', "not a PosixPath", "write 'src'"),
    in_sandbox(
        "a file as stdin", 'await sandbox.run("ls", stdin=open("/dev/null"))', "stdin is text or bytes", ".read()"
    ),
    in_sandbox("a text as on_output", 'await sandbox.run("ls", on_output="log")', "on_output is 'log'", "a function"),
    in_sandbox("text as bytes", 'await sandbox.write_bytes("a.txt", "x")', "data is bytes, not str", "write_text"),
    in_sandbox("a mode of open()", 'await sandbox.write_text("a.txt", "x", mode="w")', "mode is 'w'", "0o644"),
    in_sandbox("a range as text", 'await sandbox.read_bytes("a.txt", start="1")', "start is '1'", "a whole number"),
    in_sandbox("a file that is not there", 'await sandbox.read_text("b.txt")', "No such file", "/workspace/b.txt"),
    in_sandbox("an unknown language", 'await sandbox.run_code("1", "cobol")', "cobol", "python"),
    in_sandbox(
        "a signal by number", 'job = await sandbox.start("ls")\nawait job.signal(9)', "9 is not a", "TERM or KILL"
    ),
    in_sandbox("lines as text", 'job = await sandbox.start("ls")\njob.tail("20")', "n is '20'", "a number of lines"),
    wrong(
        "a sandbox after its block",
        'async with open_sandbox("memory") as sandbox:\n    pass\nawait sandbox.run("ls")',
        "The sandbox is closed",
        "open a new one",
    ),
    wrong(
        "a session on a closed sandbox",
        'async with open_sandbox("memory") as sandbox:\n    pass\nSession(sandbox=sandbox)',
        "Session.sandbox is closed",
        "inside the block",
    ),
]

CALLS = [
    wrong(
        "a file in an empty workspace",
        """
        async with open_sandbox("memory") as sandbox:
            async with Session(builtin_tools("read_only"), sandbox=sandbox) as session:
                result = await session.call("read", {"path": "a.txt"})
        """,
        "a.txt does not exist",
        "The workspace is empty",
    ),
    in_session("arguments: None", 'result = await session.call("add", None)', "must be an object", '{"a": 1}'),
    in_session("arguments: a list", 'result = await session.call("add", [1, 2])', "must be an object", '{"a": 1}'),
    in_session("arguments: bytes", 'result = await session.call("add", b"{}")', "bytes is not JSON", '{"a": 1}'),
    in_session("arguments by name", 'await session.call("add", a=1)', "write session.call('add', {'a': 1})"),
    in_session("a misspelt argument", 'result = await session.call("add", {"c": 1})', "`a` is missing", "only a, b"),
    in_session("a misspelt tool", 'result = await session.call("ad", {})', "no tool called 'ad'", "Did you mean add?"),
    in_session("a tool, not its name", "await session.call(add, {})", "the name of a tool is a Tool", "a text"),
    in_session("a call without await", 'session.call("add", {"a": 1})', "coroutine 'Session.call' was never awaited"),
    in_session("call_all: tuples", 'await session.call_all([("add", {"a": 1})])', "is a tuple", "write Call('1', "),
    in_session("call_all: one call", 'await session.call_all(Call("1", "add", {}))', "is a Call", "call_all([Call("),
    in_session("approved: True", 'await session.call("drop", {"table": "x"}, approved=True)', "True", "arguments_hash"),
    in_session("approved: a number", 'await session.call("add", {"a": 1}, approved=7)', "approved is 7", "the hash"),
    in_session("id: a number", 'await session.call("add", {"a": 1}, id=7)', "the id of a call is 7", "a text"),
    in_session(
        "begin: id is a list", 'session.begin("add", {"a": 1}, id=["a"])', "the id of a call is a list", "a text"
    ),
    in_session("call_all: id is a number", 'await session.call_all([Call(7, "add", {})])', "the id of a call is 7"),
    in_session(
        "parent: a call", 'session.begin("add", {}, parent=Call("1", "add", {}))', "parent is a Call", "the id of"
    ),
    in_session("the same session again", "async with session: ...", "was entered before", "make a new Session"),
    in_session("a need for a person, and nobody", 'result = await session.call("drop", {"table": "x"})', "no approver"),
    wrong(
        "a call after the session",
        'async with Session([add]) as session:\n    pass\nawait session.call("add", {"a": 1})',
        "is closed",
        "open a new session",
    ),
    wrong("run_sync in async code", "run_sync(anyio.sleep(0))", "inside a running event loop", "write `await`"),
    wrong("run_sync of a sandbox", "run_sync(open_sandbox())", "run_sync() was given <open_s", "`async with … as …:`"),
    wrong("run_sync of a session", "run_sync(Session([add]))", "was given <Session", "run_sync(main)"),
    wrong("run_sync of nothing", "run_sync(None)", "run_sync() was given None", "run_sync(main)"),
    wrong("run_sync of a class", "run_sync(Session)", "was given the class Session", "run_sync(main)"),
    wrong(
        "run_sync of a plain function",
        "def main():\n    return 3\nawait anyio.to_thread.run_sync(run_sync, main)",
        "run_sync() was given the function main, which returned 3",
        "write `async def main",
    ),
    wrong(
        "a tool that calls itself for ever",
        """
        @tool
        async def again(context: Context) -> str:
            "Again."
            answer = await context.use("again")
            if answer.message:
                raise ToolFailed(answer)
        async with Session([again]) as session:
            result = await session.call("again")
        """,
        "calls inside one another",
        "the limit is 16",
        "A tool that calls itself needs an end",
    ),
    wrong(
        "a tool that needs a sandbox, without one",
        "Session(builtin_tools())",
        "needs a sandbox that enforces",
        "this session has none",
    ),
]

OPTIONS = [
    wrong("policy: a mode", 'Session([add], policy="open")', "policy is 'open'", "write Policy(mode='open')"),
    wrong("policy: a dict", 'Session([add], policy={"mode": "ask"})', "policy is a dict", "write Policy(mode='ask')"),
    wrong("a mode by position", 'Policy("open")', "Policy.allow is 'open'", "write Policy(mode='open')"),
    wrong("an unknown mode", 'Policy(mode="yolo")', "mode 'yolo'", "contained, ask, strict, open"),
    wrong("a rule, not a list", 'Policy(allow="bash")', "write allow=['bash']"),
    wrong("a tool as a rule", "Policy(allow=[add])", "not a Tool", "write 'add'"),
    wrong("a rule with spaces", 'Policy(allow=["bash git *"])', "'bash git *'", "TOOL(glob)"),
    wrong("a misspelt tool in a rule", 'Session([add], policy=Policy(deny=["bsh"]))', "no tool 'bsh'", "mean 'bash'?"),
    wrong("a misspelt list of rules", 'Policy(allowed=["bash"])', "no option 'allowed'", "did you mean 'allow'?"),
    wrong("approver: True", "Session([drop], approver=True)", "approver is True", "async def approver(request)"),
    wrong("approver: a Decision", "Session([drop], approver=Decision.approve())", "is a Decision", "a function"),
    wrong("approver: a class", "Session([drop], approver=HeldApprovals)", "the class HeldApprovals", "a function"),
    approved_by("approver: takes nothing", "async def approver(): ...", "the function approver", "takes the request"),
    approved_by("approver: returns True", "approver = lambda request: True", "returned True", "Decision.approve()"),
    approved_by("approver: returns nothing", "async def approver(request): ...", "returned None", "Decision.approve()"),
    approved_by(
        "approver.wait = None",
        "async def approver(request): ...\napprover.wait = None",
        "the approver's wait is None",
        "a number of seconds above 0, or leave it out",
    ),
    wrong("a decision by hand", 'Decision("yes")', "Decision.verdict is 'yes'", "write Decision.approve()"),
    wrong("edited arguments as text", 'Decision.edit("ls")', "Decision.arguments is 'ls'", "Decision.edit({'command'"),
    wrong("budget: a number", "Session([add], budget=5)", "budget is 5", "write Budget("),
    wrong("budget: a dict", 'Session([add], budget={"calls": 5})', "budget is a dict", "write Budget(calls=5)"),
    wrong("a budget as text", 'Budget(calls="5")', "Budget.calls is '5'", "a whole number from 0 up"),
    wrong("a misspelt budget", "Budget(max_calls=5)", "no option 'max_calls'", "did you mean 'calls'?"),
    wrong("a cap of 0", "Caps(stdout=0)", "Caps.stdout is 0", "a whole number from 1 up"),
    wrong("artifacts: a path", 'Session([add], artifacts="/tmp/x")', "write Artifacts('/tmp/x')"),
    wrong("an artifact that is a dict", 'await Artifacts().put({"a": 1})', "is a dict", "json.dumps"),
    wrong("artifacts in a file", 'Artifacts("/etc/passwd")', "is '/etc/passwd'", "this is a file"),
    wrong(
        "readers: one function", "Session([add], readers=print)", "the function print", "a list, even of one: [print]"
    ),
    wrong("readers: a class", "Session([add], readers=[EventRecorder])", "the class EventRecorder", "functions"),
    wrong("gates: names", 'Session([add], gates=["permit"])', "is 'permit'", "[my_gate, *STANDARD]"),
    wrong(
        "gates: without the standard ones",
        """
        async def my_gate(step, proceed):
            return await proceed(step)
        async with Session([add], gates=[my_gate]) as session:
            result = await session.call("add", {"a": 1})
        """,
        "No gate ran add",
        "gates=[my_gate, *STANDARD]",
    ),
    wrong(
        "a gate that forgets to return",
        """
        async def my_gate(step, proceed):
            await proceed(step)
        async with Session([add], gates=[my_gate, *STANDARD]) as session:
            await session.call("add", {"a": 1})
        """,
        "the gate my_gate returned None",
        "return await proceed(step)",
    ),
    wrong(
        "tracing: where spans go, as a text",
        'from handrail.otel import Tracing\nTracing("http://localhost:4318")',
        "tracer_provider is 'http://localhost:4318'",
        "a TracerProvider",
    ),
    wrong("tracing: content as text", 'from handrail.otel import Tracing\nTracing(content="no")', "content is 'no'"),
    wrong(
        "tracing: a misspelt option",
        "from handrail.otel import Tracing\nTracing(provider=None)",
        "Tracing() has no option 'provider'",
        "tracer_provider",
    ),
    wrong(
        "a misspelt option of Session", "Session([add], sandbx=None)", "no option 'sandbx'", "did you mean 'sandbox'?"
    ),
    wrong("a sandbox by position", "Session([add], None)", "takes tools by position", "sandbox=…"),
]

ANSWERS = [
    wrong("a model's name", 'Agent("gpt-4")', "'gpt-4' is not a Model", "whose ask yields a Turn"),
    wrong("a model's name with its provider", 'Agent("openai:gpt")', "Agent(open_model('openai:gpt'))"),
    wrong("a model's class", "Agent(ScriptedModel)", "the class ScriptedModel", "ScriptedModel(…)"),
    wrong("tools by position", "Agent(ScriptedModel([]), [add])", "takes model by position", "tools=…"),
    wrong(
        "tools beside a session",
        "Agent(ScriptedModel([]), session=Session(), tools=[add])",
        "give tools to the Session",
    ),
    wrong("no rounds", "Agent(ScriptedModel([]), rounds=0)", "Agent.rounds is 0", "a whole number above 0"),
    wrong(
        "a prompt that is a list",
        'await Agent(ScriptedModel(["Hi."])).run(["Hello"])',
        "the prompt is a list",
        "a text",
    ),
    wrong(
        "a model that returns",
        'class Mine:\n    async def ask(self, messages, tools, *, system):\n        return Turn("Hi.")\nAgent(Mine())',
        "Mine.ask returns its answer",
        "yield Turn(…)",
    ),
    wrong(
        "a model that yields text",
        """
        class Mine:
            async def ask(self, messages, tools, *, system):
                yield "Hi."
        outcome = await Agent(Mine()).run("Hello")
        result = Failure("unavailable", outcome.text)
        """,
        "Mine.ask yielded 'Hi.'",
        "yield Turn(…)",
    ),
    wrong("calls of a turn as dicts", 'Turn(calls=[{"name": "add"}])', "one of Turn.calls is a dict", "Call('1', "),
    wrong("a script that is a text", 'ScriptedModel("Hello.")', "is 'Hello.'", "ScriptedModel(['Hello.'])"),
    returning(
        "a result of another type", " -> int", '"three"', "f broke its own output schema", "the result", "an integer"
    ),
    returning("a result that is no JSON", "", "object()", "f returned an object", "A tool returns JSON data"),
    wrong(
        "ToolFailed with a text", 'raise ToolFailed("No such user")', "ToolFailed(Failure('not_found', 'No such user'))"
    ),
    wrong("an unknown kind of failure", 'Failure("oops", "No.")', "'oops' is not a failure kind", "not_found"),
    wrong("a path as an image", 'Image("plot.png")', "Image.data is 'plot.png'", "read_bytes()"),
    wrong("an envelope as a dict", 'read_envelope({"ok": True})', "it is a dict, not text", "json.dumps"),
    wrong("a text that is no envelope", 'read_envelope("hello")', "the JSON of result.to_envelope(tool)"),
]

MISTAKES = [*TOOLS, *OPENING, *COMMANDS, *CALLS, *OPTIONS, *ANSWERS]


async def message_of(code: str) -> str:
    """What the code is told."""
    names: dict[str, Any] = {name: getattr(handrail, name) for name in handrail.__all__}
    names |= {name: getattr(handrail.testing, name) for name in handrail.testing.__all__}
    names |= {"anyio": anyio, "Path": Path, "__name__": "mistake"}
    gc.freeze()  # only what this code leaves is collected below: all else would take a third of a second
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        exec(PRELUDE, names)
        try:
            made = eval(compile(code, "mistake.py", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(made):
                await made
        except Exception as error:  # noqa: BLE001 - every message counts
            return f"{type(error).__name__}: {error}"
        finally:
            gc.collect()  # what was never awaited, or left open, warns now
            gc.unfreeze()
    if warned:
        return f"{warned[0].category.__name__}: {warned[0].message}"
    return str(names["result"].message)


async def table() -> str:
    """Every mistake and its message, as Markdown."""
    lines = ["| # | mistake | code | message |", "|---|---|---|---|"]
    for number, mistake in enumerate(MISTAKES, 1):
        told = await message_of(mistake.code)
        cells = [" ⏎ ".join(text.replace("|", "\\|").splitlines()) for text in (mistake.code, told)]
        lines.append(f"| {number} | {mistake.sentence} | `{cells[0]}` | {cells[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(anyio.run(table))
