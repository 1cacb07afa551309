"""Which local backends of other frameworks are put through the kit, and which of our drivers beside them."""

from typing import Final

PEERS: Final = {
    "pydantic-ai": "pydantic-ai-slim==2.66.0",
    "deepagents": "deepagents==0.7.32",
    "inspect": "inspect-ai==0.3.285",
    "agno": "agno==3.1.10",
    "openai-agents": "openai-agents==0.24.0",
}
"""By name: the package, at the version of which docs/peers.md tells."""
BACKENDS: Final = {
    "pydantic-ai": "`LocalWorkspaceBackend`",
    "deepagents": "`LocalShellBackend`",
    "inspect": "sandbox `local`",
    "agno": "toolkit `Workspace`",
    "openai-agents": "`UnixLocalSandboxClient`",
}
OURS: Final = ("jail", "host")
