"""The tools a model needs on day one, one file each; every property they advertise reaches the sandbox."""
