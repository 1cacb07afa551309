"""The names of OpenTelemetry's conventions for generative AI that our spans use; they stand here and nowhere else."""

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
"""Attribute for one of the three operations below, which are also how the names of spans begin."""
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"

CONVERSATION: Final = "gen_ai.conversation.id"
"""Attribute for the session's id."""
AGENT_NAME: Final = "gen_ai.agent.name"
ERROR_TYPE: Final = "error.type"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
"""The type of every tool of ours."""
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"

PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"

# Content, only on request
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
SYSTEM: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
EXCEPTION: Final = "exception"
"""Name of a span's event that has a traceback."""
STACKTRACE: Final = "exception.stacktrace"
