"""One bridge from plain code: it runs what it is given, and refuses where `await` is the way."""

import pytest

from handrail import Context, HandrailError, Session, run_sync


async def double(n: int) -> int:
    return 2 * n


def test_it_runs_a_coroutine_or_a_function_with_its_arguments() -> None:
    assert run_sync(double(2)) == 4
    assert run_sync(double, 3) == 6


def test_what_the_work_raises_comes_out() -> None:
    async def fails() -> None:
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        run_sync(fails)


@pytest.mark.anyio
async def test_inside_a_running_loop_it_refuses_and_leaves_no_coroutine_behind() -> None:
    with pytest.raises(HandrailError, match="write `await` instead"):
        run_sync(double(2))  # a coroutine that nobody awaits would be a warning, and so an error here
    with pytest.raises(HandrailError, match="write `await` instead"):
        run_sync(double, 2)


@pytest.mark.anyio
async def test_the_body_of_a_def_tool_may_use_it() -> None:
    def doubles(n: int) -> int:
        return run_sync(double, n)

    def asks(context: Context) -> int:
        return run_sync(context.use, "doubles", {"n": 4}).value

    async with Session([doubles, asks]) as session:
        assert (await session.call("doubles", {"n": 2})).value == 4
        assert (await session.call("asks")).value == 8


def test_a_whole_session_fits_under_it() -> None:
    async def main() -> int:
        async with Session([double]) as session:
            return (await session.call("double", {"n": 21})).value

    assert run_sync(main) == 42


def test_an_exception_has_no_context_of_ours() -> None:
    """A traceback shows what the program did, not how run_sync found out that no loop runs."""

    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        run_sync(fails)
    assert raised.value.__context__ is None
