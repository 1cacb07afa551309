"""The guard: one small static program that starts commands, ends their whole trees and touches files."""
