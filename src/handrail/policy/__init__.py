"""Permission: the policy, its rules, how a call is judged, and what a person is asked."""
