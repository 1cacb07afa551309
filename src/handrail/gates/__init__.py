"""The gates that every call walks through, one small file each; session/standard.py has their order."""
