"""The management shell (SPEC V1): the source system's command syntax for what Gatepost has.

text ─► syntax (pure) ─► pipeline ─► binding ─► cmdlet ─► session ─► organization's file, registry, directory
                                                   └────► things ─► table, list or JSON
"""
