"""The publication kit of finished runs: figures, tables, captions, a methods paragraph and their references.

Knows run folders and the analysis' own tables and figures; measures nothing itself.
"""
