"""A sandbox provider for Inspect: `Task(sandbox="handrail")`, found by an entry point."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import inspect_ai.util as theirs
from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment, SandboxEnvironmentLimits
from pydantic import BaseModel

from handrail.contract.driver import StreamName
from handrail.contract.errors import Unavailable
from handrail.drivers.open import open_sandbox
from handrail.sandbox.completed import EXIT_NOT_FOUND, Completed
from handrail.sandbox.sandbox import Sandbox


class HandrailConfig(BaseModel, frozen=True, extra="forbid"):
    """How the sandbox of a sample is opened: `SandboxEnvironmentSpec("handrail", HandrailConfig(network="full"))`."""

    driver: str = "auto"
    network: str = "none"
    allow_weaker: bool = False


@theirs.sandboxenv(name="handrail")
class HandrailSandbox(SandboxEnvironment):
    """One sandbox for each sample, on a directory of its own that goes with it."""

    def __init__(self, sandbox: Sandbox, opened: AsyncExitStack) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._opened = opened

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        given = HandrailConfig(driver=config) if isinstance(config, str) else config or HandrailConfig()
        opened = AsyncExitStack()
        sandbox = await opened.enter_async_context(open_sandbox(**given.model_dump()))
        return {"default": cls(sandbox, opened)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for each in environments.values():
            await each.as_type(cls)._opened.aclose()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return HandrailConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command. A timeout ends the whole tree and is not retried, since a retry could repeat side effects."""
        if user is not None:
            raise theirs.SandboxUserUnsupportedError(f"a command cannot run as {user!r}: the sandbox has one user")
        try:
            with _available():
                done = await self.sandbox.run(cmd, stdin=input, cwd=cwd, env=env, timeout=timeout)
        except FileNotFoundError as error:
            return ExecResult(False, EXIT_NOT_FOUND, "", f"{cmd[0]}: {error.strerror or error}\n")
        if done.ended_by == "timeout":
            raise TimeoutError(f"{cmd[0]} ran longer than {timeout} s and was stopped, with all it started")
        return ExecResult(done.exit_code == 0, done.exit_code, _text(done, "stdout"), _text(done, "stderr"))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        with _available(file):
            await self.sandbox.write_bytes(file, contents.encode() if isinstance(contents, str) else contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        with _available(file):
            if (await self.sandbox.stat(file)).size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            content = await self.sandbox.read_bytes(file)
        return content.decode() if text else content

    def default_polling_interval(self) -> float:
        return 0.2


def _text(done: Completed, stream: StreamName) -> str:
    """All that was printed on a stream. Raises OutputLimitExceededError where that is more than Inspect allows."""
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    text = done.spool.read(length=limit, stream=stream).decode("utf-8", "replace")
    if done.spool.size(stream) > limit or done.spool.discarded(stream):
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, text)
    return text


@contextmanager
def _available(file: str | None = None) -> Iterator[None]:
    """Raise errors in the form that Inspect expects: file errors carry the file's name."""
    try:
        yield
    except Unavailable as error:
        raise theirs.SandboxUnavailableError(str(error)) from error
    except OSError as error:
        if file is None or error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, file) from error
