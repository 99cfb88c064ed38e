"""The HTTPS front end: a request is signed in and routed by itself, whatever connection it comes on.

client ──► client_leg ──► exchange ──► server_leg ──► mailbox server
           heads, order   one request   response heads
                          │
           door: settings, sign-in, router, destinations, pools
"""
