"""Language models behind one interface: `open_model("anthropic:NAME")` gives a Model for an Agent."""

from handrail.models.open import open_model as open_model
from handrail.models.recorded import Recording as Recording

__all__ = ["Recording", "open_model"]
