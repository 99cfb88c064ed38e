"""Forms sign-in (SPEC B6): the page, the cookie, and what becomes of both."""
