"""The message of any exception, even of one whose own `str` raises."""


def said(error: BaseException) -> str:
    """Its type and its message."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - that is what this is for
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
