"""What Handrail costs, as ratios to a floor that is timed in the same run."""
