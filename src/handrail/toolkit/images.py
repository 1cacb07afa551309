"""Recognise pictures that a model can be shown."""

from typing import Final

MAX_IMAGE_BYTES: Final = 5 << 20
"""Bytes of the largest image that is shown."""
IMAGES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""Media types of pictures, by the bytes that their files begin with."""


def image_type(head: bytes) -> str | None:
    """The media type of a picture, by the first bytes of its file; None for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in IMAGES.items() if head.startswith(magic)), None)
