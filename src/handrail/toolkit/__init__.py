"""Building blocks of tools and gates: Tool, Context, Toolbox, Gate, Clock."""
