"""The specification: frozen dataclasses, Literals and Protocols, standard library only."""
