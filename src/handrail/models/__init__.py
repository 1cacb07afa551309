"""Language models behind one interface: `open_model("anthropic:NAME")` gives a Model for an Agent."""

from handrail.models.open import open_model as open_model

__all__ = ["open_model"]
