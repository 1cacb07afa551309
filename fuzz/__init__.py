"""Hostile frames for the guard's parser, under AddressSanitizer and UndefinedBehaviorSanitizer."""
