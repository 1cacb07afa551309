"""What tools and gates are made of: Tool, Context, Toolbox, Gate, Clock."""
