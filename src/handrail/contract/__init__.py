"""The specification: frozen dataclasses, Literals and Protocols. It imports only the standard library."""
