"""Handrail: the tool runtime between a language model and the side effects it causes."""

from typing import TYPE_CHECKING

from handrail.contract.version import __version__ as __version__

if TYPE_CHECKING:  # the public surface: type checkers read these lines, and so does the other branch
    from handrail.agent.agent import Agent as Agent
    from handrail.agent.loop import Outcome as Outcome
    from handrail.agent.steering import TaskState as TaskState
    from handrail.artifacts.store import Artifacts as Artifacts
    from handrail.contract.approval import ApprovalRequest as ApprovalRequest
    from handrail.contract.approval import Approver as Approver
    from handrail.contract.approval import Decision as Decision
    from handrail.contract.blobs import Blobs as Blobs
    from handrail.contract.call import Call as Call
    from handrail.contract.clock import Clock as Clock
    from handrail.contract.driver import Chunk as Chunk
    from handrail.contract.driver import Command as Command
    from handrail.contract.driver import Driver as Driver
    from handrail.contract.driver import Feature as Feature
    from handrail.contract.driver import FileStat as FileStat
    from handrail.contract.driver import Guarantee as Guarantee
    from handrail.contract.driver import Mount as Mount
    from handrail.contract.driver import Process as Process
    from handrail.contract.driver import Report as Report
    from handrail.contract.errors import BadEnvelope as BadEnvelope
    from handrail.contract.errors import BadSchema as BadSchema
    from handrail.contract.errors import BrokenDriver as BrokenDriver
    from handrail.contract.errors import HandrailError as HandrailError
    from handrail.contract.errors import NameConflict as NameConflict
    from handrail.contract.errors import ToolFailed as ToolFailed
    from handrail.contract.errors import Unavailable as Unavailable
    from handrail.contract.errors import WeakerThanAsked as WeakerThanAsked
    from handrail.contract.event import Event as Event
    from handrail.contract.limits import Budget as Budget
    from handrail.contract.limits import Caps as Caps
    from handrail.contract.limits import Limits as Limits
    from handrail.contract.model import CallDelta as CallDelta
    from handrail.contract.model import Message as Message
    from handrail.contract.model import Model as Model
    from handrail.contract.model import ModelEvent as ModelEvent
    from handrail.contract.model import ModelFailed as ModelFailed
    from handrail.contract.model import TextDelta as TextDelta
    from handrail.contract.model import ThinkingDelta as ThinkingDelta
    from handrail.contract.model import Turn as Turn
    from handrail.contract.model import Usage as Usage
    from handrail.contract.payload import FileExists as FileExists
    from handrail.contract.payload import ListFiles as ListFiles
    from handrail.contract.payload import ReadFile as ReadFile
    from handrail.contract.payload import RunCode as RunCode
    from handrail.contract.payload import WriteFile as WriteFile
    from handrail.contract.result import ArtifactRef as ArtifactRef
    from handrail.contract.result import Failure as Failure
    from handrail.contract.result import Image as Image
    from handrail.contract.result import Result as Result
    from handrail.contract.result import Success as Success
    from handrail.contract.result import read_envelope as read_envelope
    from handrail.contract.truncated import Truncated as Truncated
    from handrail.drivers.open import open_sandbox as open_sandbox
    from handrail.policy.approvers import HeldApprovals as HeldApprovals
    from handrail.policy.approvers import first_of as first_of
    from handrail.policy.policy import Policy as Policy
    from handrail.policy.rule import Rule as Rule
    from handrail.sandbox.completed import CodeResult as CodeResult
    from handrail.sandbox.completed import Completed as Completed
    from handrail.sandbox.dispatch import Listing as Listing
    from handrail.sandbox.dispatch import Written as Written
    from handrail.sandbox.job import Job as Job
    from handrail.sandbox.sandbox import Sandbox as Sandbox
    from handrail.sandbox.streams import CommandStream as CommandStream
    from handrail.sandbox.streams import StreamMark as StreamMark
    from handrail.scrub import Scrubber as Scrubber
    from handrail.session.pending import Pending as Pending
    from handrail.session.session import Session as Session
    from handrail.session.standard import STANDARD as STANDARD
    from handrail.store.attached import Attached as Attached
    from handrail.store.check import SessionCheck as SessionCheck
    from handrail.store.store import Store as Store
    from handrail.store.summary import Summary as Summary
    from handrail.toolkit.bridge import run_sync as run_sync
    from handrail.toolkit.context import Context as Context
    from handrail.toolkit.context import Host as Host
    from handrail.toolkit.gate import Gate as Gate
    from handrail.toolkit.gate import Next as Next
    from handrail.toolkit.gate import Step as Step
    from handrail.toolkit.hosted import HostedTool as HostedTool
    from handrail.toolkit.tool import Behaviour as Behaviour
    from handrail.toolkit.tool import Tool as Tool
    from handrail.toolkit.tool import tool as tool
    from handrail.toolkit.toolbox import Toolbox as Toolbox
    from handrail.tools.builtin import builtin_tools as builtin_tools
    from handrail.tools.plugins import plugin_tools as plugin_tools
else:
    from importlib import import_module

    _HOMES = {
        line.rpartition(" ")[2]: line.split()[1]
        for line in __loader__.get_data(__file__).decode().splitlines()
        if line.startswith("    from handrail.")
    }
    __all__ = list(_HOMES)

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used, so that `import handrail` costs next to nothing."""
        if name not in _HOMES:
            raise AttributeError(f"module 'handrail' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
