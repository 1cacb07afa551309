"""Who may do what: the policy, its rules, how a call is judged by them, and what a person is asked."""
