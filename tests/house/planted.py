"""For every rule: files that break it, and similar files that do not."""

from dataclasses import dataclass

from tests.house import modules, rules, words
from tests.house.rules import Rule

PROMISE = '"""It promises something small."""\n'


@dataclass(frozen=True, slots=True)
class Planted:
    """A file in an empty tree, imported by `importer` if given: `rule` must catch it, or must not if it is `kept`."""

    rule: Rule
    path: str
    text: str
    kept: bool
    importer: str = ""

    def __str__(self) -> str:
        return f"{self.rule.__name__}-{self.path}-{'kept' if self.kept else 'caught'}"


Row = tuple[str, str, bool, str]


def caught(path: str, text: str, importer: str = "") -> Row:
    """The path is relative to the package, unless it starts with a directory beside it."""
    return path, text, False, importer


def kept(path: str, text: str, importer: str = "") -> Row:
    return path, text, True, importer


def for_rule(rule: Rule, *rows: Row) -> list[Planted]:
    beside = ("docs/", "tests/", "README")
    return [Planted(rule, p if p.startswith(beside) else f"src/handrail/{p}", *rest) for p, *rest in rows]  # type: ignore[arg-type]


def long_file(count: int) -> str:
    return PROMISE + "x = 1\n" * (count - 1)


def long_function(count: int) -> str:
    return PROMISE + "def f():\n" + "    x = 1\n" * (count - 1)


def table_of_commands(text: str, module: str) -> str:
    twin = f"if TYPE_CHECKING:\n    from handrail.cli.{module} import app as {module}\n"
    return f"{PROMISE}{twin}COMMANDS: Final = {{{text!r}: 'Talk with a model.'}}\n"


def lazily(module: str, twin: str) -> str:
    typed = f"if TYPE_CHECKING:\n    {twin}\nelse:\n    _x = Lazy('{module}')\n" if twin else f"_x = Lazy('{module}')\n"
    return PROMISE + typed


PLANTED = [
    *for_rule(
        rules.files_stay_under_their_ceiling,
        caught("gates/a.py", long_file(401)),
        kept("gates/b.py", long_file(400)),
        caught("drivers/guard/a.c", "int x;\n" * 401),
        kept("drivers/guard/b.c", "int x;\n" * 400),
    ),
    *for_rule(
        rules.functions_stay_under_forty_lines,
        caught("gates/a.py", long_function(41)),
        kept("gates/b.py", long_function(40)),
    ),
    *for_rule(
        rules.names_are_plain_words,
        caught("gates/utils.py", PROMISE),
        caught("common/__init__.py", PROMISE),
        caught("gates/a.py", PROMISE + "class LaneManager: ...\n"),
        kept("gates/b.py", PROMISE + "class Baseline: ...\n"),
    ),
    *for_rule(
        rules.the_environment_is_read_in_cli_alone,
        caught("gates/a.py", PROMISE + "import os\nos.environ['A']\n"),
        caught("gates/b.py", PROMISE + "from os import getenv\n"),
        kept("cli/a.py", PROMISE + "import os\nos.environ\n"),
    ),
    *for_rule(
        rules.functions_import_nothing_but_extras,
        caught("gates/a.py", PROMISE + "def f():\n    import json\n"),
        kept("cli/a.py", PROMISE + "def f():\n    import typer\n"),
    ),
    *for_rule(
        rules.asyncio_is_said_in_aio_alone,
        caught("session/a.py", PROMISE + "import asyncio\n"),
        caught("session/a.py", PROMISE + "from asyncio import sleep\n"),
        caught("session/a.py", PROMISE + 'import sys\nx = sys.modules["asyncio"]\n'),
        kept("session/a.py", '"""It runs on asyncio, and says so in words alone."""\n'),
        kept("aio.py", PROMISE + "import asyncio\n"),
    ),
    *for_rule(
        rules.constructors_start_no_task,
        caught(
            "session/a.py", PROMISE + "class A:\n    def __init__(self):\n        self.t = in_background(self.run())\n"
        ),
        caught(
            "session/a.py", PROMISE + "class A:\n    def __init__(self, group):\n        group.start_soon(self.run)\n"
        ),
        caught("aio.py", PROMISE + "class A:\n    def __post_init__(self):\n        call_on(self.loop, self.begin)\n"),
        kept("session/a.py", PROMISE + "class A:\n    def begin(self):\n        self.t = in_background(self.run())\n"),
    ),
    *for_rule(
        rules.modules_open_with_their_promise,
        caught("gates/a.py", "x = 1\n"),
        caught("gates/b.py", '"""Gate."""\n'),
        kept("gates/c.py", PROMISE),
    ),
    *for_rule(
        rules.a_body_is_called_from_invoke_alone,
        caught("gates/a.py", PROMISE + "tool.body(1, 2)\n"),
        caught("toolkit/a.py", PROMISE + "tool.body(1, 2)\n"),
        caught("session/a.py", PROMISE + "run = tool.body\n"),
        caught("session/b.py", PROMISE + "getattr(tool, 'body')\n"),
        caught("schema/a.py", PROMISE + "tool.body(1, 2)\n"),
        kept("schema/b.py", PROMISE + "first = ast.parse(text).body\n"),
        kept("gates/invoke.py", PROMISE + "tool.body(1, 2)\n"),
    ),
    *for_rule(
        rules.nobody_calls_a_tool_as_its_function,
        caught("gates/a.py", PROMISE + "answer = step.tool(1)\n"),
        caught("gates/b.py", PROMISE + "answer = tool.function(1)\n"),
        caught("tools/c.py", PROMISE + "@tool\ndef c(n): ...\nc(1)\n"),
        caught("tools/d.py", PROMISE + "@tool(timeout=1)\nasync def d(n): ...\nawait_ = d(1)\n"),
        caught("tools/e.py", PROMISE + "from handrail.tools.bash import bash as run\nrun('ls')\n"),
        kept("tools/f.py", PROMISE + "from handrail.tools.bash import answer\nanswer(1)\n@tool\ndef f(n): ...\n"),
        kept("toolkit/tool.py", PROMISE + "self.function(1)\n"),
    ),
    *for_rule(
        rules.the_contract_stands_on_the_standard_library,
        caught("contract/a.py", PROMISE + "import anyio\n"),
        kept("contract/b.py", PROMISE + "import json\n"),
    ),
    *for_rule(
        rules.models_know_the_contract_schemas_and_secrets_alone,
        caught("models/a.py", PROMISE + "import handrail.gates\n"),
        kept("models/b.py", PROMISE + "import handrail.schema\n"),
        kept("models/c.py", PROMISE + "import handrail.scrub\n"),
    ),
    *for_rule(
        rules.rooms_do_not_use_the_front_door,
        caught("gates/a.py", PROMISE + "from handrail import Session\n"),
        kept("gates/b.py", PROMISE + "from handrail import gates\n"),
    ),
    *for_rule(
        rules.a_row_of_the_table_of_commands_has_a_typed_twin,
        caught("cli/_commands.py", table_of_commands("chta", "chat")),
        kept("cli/_commands.py", table_of_commands("chat", "chat")),
    ),
    *for_rule(
        rules.modules_named_as_text_have_a_typed_twin,
        caught("gates/a.py", lazily("handrail.schema.prepare", "")),
        caught("gates/b.py", lazily("handrail.schema.prepare", "from handrail.schema import repair as _x")),
        caught("gates/c.py", lazily("handrail.schema.prepare", "from handrail.schema import prepare as _y")),
        caught("gates/d.py", PROMISE + "from importlib import import_module\nx = import_module('handrail.agent')\n"),
        caught("gates/e.py", PROMISE + "import importlib\nx = importlib.import_module(f'handrail.{y}')\n"),
        caught("gates/f.py", PROMISE + "x = __import__('handrail.agent')\n"),
        caught("gates/g.py", PROMISE + "x = getattr(Lazy(f'handrail.drivers.{y}'), z)\n"),
        kept("gates/h.py", lazily("handrail.schema.prepare", "from handrail.schema import prepare as _x")),
        kept("gates/i.py", lazily("handrail.schema", "import handrail.schema as _x")),
        kept("lazy.py", PROMISE + "x = import_module(y)\n"),
    ),
    *for_rule(
        rules.what_is_mentioned_can_be_imported,
        caught("gates/a.py", PROMISE + "class Wall: ...\nraise ValueError('a jail needs a Wall around it')\n"),
        caught("gates/b.py", PROMISE + "class Wall: ...\nraise ValueError(f'Wall.height is {x}')\n"),
        caught("gates/c.py", PROMISE + "class HighWall: ...\nraise ValueError('HighWall was not given')\n"),
        caught("contract/d.py", PROMISE + "Wall = str\nraise ValueError('it is not a Wall')\n"),
        kept("adapters/bricks.py", PROMISE + "class Wall: ...\nraise ValueError('a jail needs a Wall around it')\n"),
        kept("gates/e.py", PROMISE + "class Wall: ...\nraise ValueError('Wall against wall. Walls too')\n"),
        kept("gates/f.py", PROMISE + 'class Wall: ...\ndef f(x: "Wall | None") -> None:\n    """Needs a Wall."""\n'),
        kept("__init__.py", PROMISE + "from handrail.a import Wall\nclass Wall: ...\nraise ValueError('not a Wall')\n"),
    ),
    *for_rule(
        rules.every_event_type_is_emitted,
        caught("contract/event.py", PROMISE + "EventType = Literal['begun', 'ended']\nself.emit('begun')\n"),
        kept("contract/event.py", PROMISE + "EventType = Literal['a', 'b']\nself.emit('a' if x else 'b', None)\n"),
    ),
    *for_rule(
        rules.texts_speak_of_the_project_alone,
        caught("docs/a.md", "It lives in /root/src.\n"),
        caught("README.md", "Get it from https://pypi.org/simple.\n"),
        kept("docs/b.md", "/root, /proc/self/root/x, ./work, ~/work, /workspace\n"),
    ),
    *for_rule(
        rules.nothing_is_left_for_later,
        caught("gates/a.py", PROMISE + "# TODO: the rest\n"),
        kept("gates/b.py", PROMISE + "except_ = NotImplementedError\n"),
    ),
    *for_rule(
        rules.tests_use_fakes_and_not_mocks,
        caught("tests/test_a.py", "from unittest.mock import MagicMock\n"),
        caught("tests/test_b.py", "monkeypatch.setattr(a, 'b', 1)\n"),
        kept("tests/test_c.py", "monkeypatch.chdir(a)\n"),
    ),
    *for_rule(
        modules.helpers_have_a_leading_underscore,
        caught("tools/a.py", long_file(30), "tools/_b.py"),
        caught("tools/a.py", PROMISE + "def a(): ...\n", "tools/builtin.py"),
        caught("cli/a.py", long_file(30), "cli/_b.py"),
        caught("artifacts/a.py", long_file(30), "artifacts/_b.py"),
        caught("gates/a.py", PROMISE + "async def a(step): ...\n", "gates/_b.py"),
        caught("drivers/a.py", PROMISE + "async def open_b(): ...\n", "drivers/_b.py"),
        caught("session/a.py", long_file(30), "session/_b.py"),
        kept("gates/a.py", PROMISE + "async def a(step, proceed): ...\n", "gates/_b.py"),
        kept("drivers/a.py", PROMISE + "async def open_a(): ...\n", "drivers/_b.py"),
        kept("tools/_a.py", long_file(30), "tools/_b.py"),
        kept("tools/a.py", PROMISE + "@tool(risk='high')\ndef a(): ...\n", "tools/builtin.py"),
        kept("cli/a.py", PROMISE + "@app.command()\ndef a(): ...\n", "cli/_b.py"),
        kept("artifacts/a.py", long_file(30), "tools/_b.py"),
        kept("testing/a.py", long_file(30), "testing/__init__.py"),
        kept("contract/a.py", long_file(30), "contract/b.py"),
    ),
    *for_rule(
        modules.modules_with_an_underscore_stay_in_their_room,
        caught("artifacts/_a.py", long_file(30), "tools/b.py"),
        kept("artifacts/_a.py", long_file(30), "artifacts/b.py"),
    ),
    *for_rule(
        modules.no_module_imports_in_a_circle,
        caught("gates/a.py", PROMISE + "from handrail.gates import _b\n", "gates/_b.py"),
        caught("gates/a.py", PROMISE + "if TYPE_CHECKING:\n    from handrail.gates._b import x\n", "gates/_b.py"),
        kept("gates/a.py", PROMISE + "import handrail.gates._c\n", "gates/_b.py"),
    ),
    *for_rule(
        modules.no_module_is_a_scrap,
        caught("artifacts/_a.py", long_file(29), "artifacts/b.py"),
        caught("tools/a.py", long_file(29), "cli/_b.py"),
        kept("artifacts/_a.py", long_file(30), "artifacts/b.py"),
        kept("artifacts/a.py", long_file(29), "tools/b.py"),
        kept("tools/a.py", PROMISE + "@tool\ndef a(): ...\n"),
        kept("gates/a.py", PROMISE + "async def a(step, proceed): ...\n"),
        kept("cli/__init__.py", PROMISE),
    ),
    *for_rule(
        words.docstrings_begin_with_their_subject,
        caught("schema/a.py", '"""What a schema says about it."""\n'),
        caught("schema/b.py", PROMISE + 'class B:\n    """Who is asked about a call."""\n'),
        caught("schema/c.py", PROMISE + 'async def c():\n    """\n    By name: the tools."""\n'),
        caught("schema/d.py", PROMISE + 'D = 1\n"""Of so many times, one is tried."""\n'),
        caught("schema/e.py", PROMISE + 'class E:\n    e: int\n    """One whose value is known."""\n'),
        caught("schema/f.py", PROMISE + 'class F:\n    def f(self):\n        self.g = 1\n        """As it was."""\n'),
        caught("schema/g.py", PROMISE + 'def g():\n    """Where nothing is yet."""\n'),
        kept("schema/h.py", PROMISE + 'def h():\n    """Whether it fits. What does not fit is left out."""\n'),
        kept("schema/i.py", PROMISE + 'I = 1\n"""Ask, and say: As if."""\nx = "What is that?"\n'),
        kept("schema/j.py", PROMISE + 'J = 1\n"""Bytes of one offer."""\n'),
    ),
]
