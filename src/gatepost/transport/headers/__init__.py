"""Header work on a message's way: in at the front (`filter`), out at the end (`edits`), and the fields added here."""
