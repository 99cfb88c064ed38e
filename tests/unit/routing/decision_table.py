"""The decision table: named combinations of facts, each with its outcome written out.

A line names what differs from the usual case of the source (`worlds.Facts`): a browser at `/owa`, a 2010 mailbox in
another site whose client access server is a Gatepost front end with an https internal URL, Integrated authentication
and no external URL, edition rtm. `MBX` is the mailbox's server, `DOOR` the client access server beside it.
"""

from __future__ import annotations

from worlds import Facts

TABLE = """
# IMAP and POP3 (C1, C9, C10)
ask=imap mailbox=2003 site=same                            | serve MBX
ask=imap mailbox=2003                                      | refuse other site
ask=imap mailbox=2003 edition=sp2                          | proxy DOOR
ask=imap mailbox=2007 site=same                            | serve MBX
ask=imap mailbox=2007                                      | refuse other site
ask=imap mailbox=2007 edition=sp2                          | proxy DOOR
ask=imap mailbox=2010 site=same                            | serve MBX
ask=imap mailbox=2010                                      | refuse other site
ask=imap mailbox=2010 edition=sp2                          | proxy DOOR
ask=imap mailbox=modern site=same                          | serve MBX
ask=imap mailbox=modern                                    | proxy MBX
ask=imap mailbox=2010 edition=sp2 own=2010                 | refuse other site
ask=imap mailbox=2010 edition=sp2 own=2010 door=2010       | proxy DOOR
ask=imap mailbox=2010 edition=sp2 door=2007                | refuse other site
ask=imap mailbox=2010 door=none                            | refuse other site
ask=imap mailbox=modern own=2007                           | proxy MBX
ask=pop3 mailbox=2003 site=same                            | serve MBX
ask=pop3 mailbox=2003                                      | refuse other site
ask=pop3 mailbox=2003 edition=sp2                          | proxy DOOR
ask=pop3 mailbox=2007 site=same                            | serve MBX
ask=pop3 mailbox=2007                                      | refuse other site
ask=pop3 mailbox=2007 edition=sp2                          | proxy DOOR
ask=pop3 mailbox=2010 site=same                            | serve MBX
ask=pop3 mailbox=2010                                      | refuse other site
ask=pop3 mailbox=2010 edition=sp2                          | proxy DOOR
ask=pop3 mailbox=modern site=same                          | serve MBX
ask=pop3 mailbox=modern                                    | proxy MBX
ask=pop3 mailbox=2010 edition=sp2 own=2010                 | refuse other site
ask=pop3 mailbox=2010 edition=sp2 own=2010 door=2010       | proxy DOOR
ask=pop3 mailbox=2010 edition=sp2 door=2007                | refuse other site
ask=pop3 mailbox=2010 door=none                            | refuse other site
ask=pop3 mailbox=modern own=2007                           | proxy MBX

# 2003 mailboxes by HTTP (C4, C7)
ask=activesync mailbox=2003 site=same                      | serve MBX
ask=exchange mailbox=2003 site=same                        | serve MBX
ask=public mailbox=2003 site=same                          | serve MBX
ask=exchweb mailbox=2003 site=same                         | serve MBX
ask=owa mailbox=2003 site=same                             | refuse old mailbox
ask=ecp mailbox=2003 site=same                             | refuse old mailbox
ask=ews mailbox=2003 site=same                             | refuse not supported
ask=as mailbox=2003 site=same                              | refuse not supported
ask=activesync mailbox=2003 site=same integrated=no        | refuse no Integrated authentication
ask=exchange mailbox=2003 site=same integrated=no          | serve MBX
ask=activesync mailbox=2003 site=same internal=none        | refuse no internal URL
ask=activesync mailbox=2003 site=same external=yes         | serve MBX
ask=exchange mailbox=2003 site=same present=no             | refuse no virtual directory
ask=activesync mailbox=2003                                | proxy MBX
ask=exchange mailbox=2003                                  | proxy MBX
ask=public mailbox=2003                                    | proxy MBX
ask=exchweb mailbox=2003                                   | proxy MBX
ask=owa mailbox=2003                                       | refuse old mailbox
ask=ecp mailbox=2003                                       | refuse old mailbox
ask=ews mailbox=2003                                       | refuse not supported
ask=as mailbox=2003                                        | refuse not supported
ask=activesync mailbox=2003 integrated=no                  | refuse no Integrated authentication
ask=exchange mailbox=2003 integrated=no                    | proxy MBX
ask=activesync mailbox=2003 internal=none                  | refuse no internal URL
ask=activesync mailbox=2003 external=yes                   | proxy MBX
ask=exchange mailbox=2003 present=no                       | refuse no virtual directory
ask=activesync mailbox=2003 door=none                      | proxy MBX
ask=exchange mailbox=2003 door=none                        | proxy MBX
ask=exchange mailbox=2003 own=2003                         | proxy MBX
ask=activesync mailbox=2003 from_peer=yes                  | proxy MBX

# The paths of 2003 for newer mailboxes (C7)
ask=exchange mailbox=2007 site=same                        | redirect own path
ask=exchange mailbox=2007                                  | redirect own path
ask=public mailbox=2007 site=same                          | redirect own path
ask=public mailbox=2007                                    | redirect own path
ask=exchweb mailbox=2007 site=same                         | refuse no virtual directory
ask=exchweb mailbox=2007                                   | refuse no virtual directory
ask=exchange mailbox=2010 site=same                        | redirect own path
ask=exchange mailbox=2010                                  | redirect own path
ask=public mailbox=2010 site=same                          | redirect own path
ask=public mailbox=2010                                    | redirect own path
ask=exchweb mailbox=2010 site=same                         | refuse no virtual directory
ask=exchweb mailbox=2010                                   | refuse no virtual directory
ask=exchange mailbox=modern site=same                      | redirect own path
ask=exchange mailbox=modern                                | redirect own path
ask=public mailbox=modern site=same                        | redirect own path
ask=public mailbox=modern                                  | redirect own path
ask=exchweb mailbox=modern site=same                       | refuse no virtual directory
ask=exchweb mailbox=modern                                 | refuse no virtual directory
ask=exchange mailbox=2010 external=yes switch=off          | redirect own path
ask=exchange mailbox=2010 from_peer=yes                    | refuse loop

# In this site (C1)
ask=owa mailbox=2007 site=same reach=basic                 | serve DOOR
ask=activesync mailbox=2007 site=same reach=basic          | serve DOOR
ask=ews mailbox=2007 site=same reach=basic                 | serve DOOR
ask=owa mailbox=2007 site=same reach=header door=2007      | serve DOOR
ask=owa mailbox=2007 site=same reach=peer                  | refuse no virtual directory
ask=owa mailbox=2007 site=same reach=basic external=yes    | serve DOOR
ask=owa mailbox=2007 site=same reach=basic integrated=no   | serve DOOR
ask=owa mailbox=2007 site=same reach=basic internal=http   | serve DOOR
ask=owa mailbox=2007 site=same reach=basic internal=none   | refuse no internal URL
ask=owa mailbox=2007 site=same reach=basic present=no      | refuse no virtual directory
ask=owa mailbox=2007 site=same door=none                   | refuse no virtual directory
ask=owa mailbox=2007 site=same reach=basic own=2007        | refuse version mismatch
ask=owa mailbox=2007 site=same reach=basic from_peer=yes   | serve DOOR
ask=owa mailbox=2010 site=same reach=basic                 | serve DOOR
ask=activesync mailbox=2010 site=same reach=basic          | serve DOOR
ask=ews mailbox=2010 site=same reach=basic                 | serve DOOR
ask=owa mailbox=2010 site=same reach=header door=2010      | serve DOOR
ask=owa mailbox=2010 site=same reach=peer                  | refuse no virtual directory
ask=owa mailbox=2010 site=same reach=basic external=yes    | serve DOOR
ask=owa mailbox=2010 site=same reach=basic integrated=no   | serve DOOR
ask=owa mailbox=2010 site=same reach=basic internal=http   | serve DOOR
ask=owa mailbox=2010 site=same reach=basic internal=none   | refuse no internal URL
ask=owa mailbox=2010 site=same reach=basic present=no      | refuse no virtual directory
ask=owa mailbox=2010 site=same door=none                   | refuse no virtual directory
ask=owa mailbox=2010 site=same reach=basic own=2010        | refuse version mismatch
ask=owa mailbox=2010 site=same reach=basic from_peer=yes   | serve DOOR
ask=owa mailbox=2007 site=same reach=basic door=2010       | refuse version mismatch
ask=owa mailbox=2010 site=same reach=basic door=2007       | refuse version mismatch
ask=owa mailbox=modern site=same                           | serve MBX
ask=ecp mailbox=modern site=same                           | serve MBX
ask=activesync mailbox=modern site=same                    | serve MBX
ask=ews mailbox=modern site=same                           | serve MBX
ask=as mailbox=modern site=same                            | serve MBX
ask=owa mailbox=modern site=same present=no                | refuse no virtual directory
ask=owa mailbox=modern site=same internal=none             | refuse no internal URL
ask=owa mailbox=modern site=same from_peer=yes through=yes | serve MBX

# Which client access server there (C2)
ask=owa door=none                                          | refuse no client access server
ask=activesync door=none                                   | refuse no client access server
ask=ews door=none                                          | refuse no client access server
ask=owa present=no                                         | refuse no virtual directory
ask=activesync present=no                                  | refuse no virtual directory
ask=ews present=no                                         | refuse no virtual directory
ask=owa own=2010                                           | refuse version mismatch
ask=activesync own=2010                                    | refuse version mismatch
ask=ews own=2010                                           | refuse version mismatch
ask=owa own=2010 door=2010                                 | proxy DOOR as peer
ask=activesync own=2010 door=2010                          | proxy DOOR as peer
ask=ews own=2010 door=2010                                 | proxy DOOR as peer
ask=owa own=2007 door=2010                                 | refuse version mismatch
ask=activesync own=2007 door=2010                          | refuse version mismatch
ask=ews own=2007 door=2010                                 | refuse version mismatch
ask=owa door=2007                                          | refuse version mismatch
ask=activesync door=2007                                   | refuse version mismatch
ask=ews door=2007                                          | refuse version mismatch
ask=owa mailbox=2007 door=2010                             | refuse version mismatch
ask=activesync mailbox=2007 door=2010                      | refuse version mismatch
ask=ews mailbox=2007 door=2010                             | refuse version mismatch
ask=owa mailbox=2007 door=2007                             | proxy DOOR as peer
ask=activesync mailbox=2007 door=2007                      | proxy DOOR as peer
ask=ews mailbox=2007 door=2007                             | proxy DOOR as peer
ask=owa mailbox=2007 door=2007 own=2010                    | proxy DOOR as peer
ask=activesync mailbox=2007 door=2007 own=2010             | proxy DOOR as peer
ask=ews mailbox=2007 door=2007 own=2010                    | proxy DOOR as peer
ask=owa mailbox=2007 door=2007 own=2007                    | proxy DOOR as peer
ask=activesync mailbox=2007 door=2007 own=2007             | proxy DOOR as peer
ask=ews mailbox=2007 door=2007 own=2007                    | proxy DOOR as peer
ask=owa door=2010                                          | proxy DOOR as peer
ask=activesync door=2010                                   | proxy DOOR as peer
ask=ews door=2010                                          | proxy DOOR as peer
ask=owa door=2003                                          | refuse version mismatch
ask=activesync door=2003                                   | refuse version mismatch
ask=ews door=2003                                          | refuse version mismatch

# ActiveSync (C3, C11)
ask=activesync                                             | proxy DOOR as peer
ask=activesync external=yes                                | redirect 451
ask=activesync edition=sp2                                 | proxy DOOR as peer
ask=activesync edition=sp2 external=yes                    | redirect 451
ask=activesync internal=none                               | refuse no internal URL
ask=activesync integrated=no                               | refuse no Integrated authentication
ask=activesync reach=basic                                 | refuse no Integrated authentication
ask=activesync reach=header                                | proxy DOOR
ask=activesync internal=http                               | refuse no internal URL
ask=activesync from_peer=yes                               | refuse loop
ask=activesync external=yes internal=none                  | refuse no internal URL
ask=activesync external=yes integrated=no                  | refuse no Integrated authentication
ask=activesync external=yes reach=basic                    | redirect 451
ask=activesync external=yes reach=header                   | redirect 451
ask=activesync external=yes internal=http                  | redirect 451
ask=activesync external=yes from_peer=yes                  | refuse loop
ask=activesync edition=sp2 internal=none                   | refuse no internal URL
ask=activesync edition=sp2 integrated=no                   | refuse no Integrated authentication
ask=activesync edition=sp2 reach=basic                     | refuse no Integrated authentication
ask=activesync edition=sp2 reach=header                    | proxy DOOR
ask=activesync edition=sp2 internal=http                   | refuse no internal URL
ask=activesync edition=sp2 from_peer=yes                   | refuse loop
ask=activesync edition=sp2 external=yes internal=none      | redirect 451
ask=activesync edition=sp2 external=yes integrated=no      | redirect 451
ask=activesync edition=sp2 external=yes reach=basic        | redirect 451
ask=activesync edition=sp2 external=yes reach=header       | redirect 451
ask=activesync edition=sp2 external=yes internal=http      | redirect 451
ask=activesync edition=sp2 external=yes from_peer=yes      | refuse loop
ask=activesync follows=no                                  | proxy DOOR as peer
ask=activesync follows=no edition=sp2                      | proxy DOOR as peer
ask=activesync external=yes follows=no                     | proxy DOOR as peer
ask=activesync external=yes follows=no edition=sp2         | proxy DOOR as peer
ask=activesync external=yes follows=no reach=basic         | refuse no Integrated authentication
ask=activesync external=yes switch=off                     | redirect 451

# Outlook Web App (C5, C6, C11)
ask=owa                                                    | proxy DOOR as peer
ask=owa external=yes                                       | redirect page
ask=owa edition=sp2                                        | proxy DOOR as peer
ask=owa edition=sp2 external=yes                           | redirect page
ask=owa internal=none                                      | refuse no internal URL
ask=owa integrated=no                                      | refuse no Integrated authentication
ask=owa reach=basic                                        | refuse no Integrated authentication
ask=owa reach=header                                       | proxy DOOR
ask=owa internal=http                                      | refuse no internal URL
ask=owa from_peer=yes                                      | refuse loop
ask=owa external=yes internal=none                         | refuse no internal URL
ask=owa external=yes integrated=no                         | refuse no Integrated authentication
ask=owa external=yes reach=basic                           | redirect page
ask=owa external=yes reach=header                          | redirect page
ask=owa external=yes internal=http                         | redirect page
ask=owa external=yes from_peer=yes                         | refuse loop
ask=owa edition=sp2 internal=none                          | refuse no internal URL
ask=owa edition=sp2 integrated=no                          | refuse no Integrated authentication
ask=owa edition=sp2 reach=basic                            | refuse no Integrated authentication
ask=owa edition=sp2 reach=header                           | proxy DOOR
ask=owa edition=sp2 internal=http                          | refuse no internal URL
ask=owa edition=sp2 from_peer=yes                          | refuse loop
ask=owa edition=sp2 external=yes internal=none             | redirect page
ask=owa edition=sp2 external=yes integrated=no             | redirect page
ask=owa edition=sp2 external=yes reach=basic               | redirect page
ask=owa edition=sp2 external=yes reach=header              | redirect page
ask=owa edition=sp2 external=yes internal=http             | redirect page
ask=owa edition=sp2 external=yes from_peer=yes             | refuse loop
ask=owa external=yes switch=silent                         | redirect silent
ask=owa switch=silent                                      | proxy DOOR as peer
ask=owa external=yes switch=silent edition=sp2             | redirect silent
ask=owa external=yes switch=off                            | proxy DOOR as peer
ask=owa switch=off                                         | proxy DOOR as peer
ask=owa external=yes switch=off edition=sp2                | proxy DOOR as peer
ask=owa external=yes switch=off reach=basic                | refuse no Integrated authentication
ask=owa external=yes switch=off integrated=no              | refuse no Integrated authentication
ask=owa external=yes switch=off integrated=no edition=sp2  | refuse no Integrated authentication
ask=owa external=yes switch=off from_peer=yes              | refuse loop

# The control panel follows Outlook Web App (C5, C6)
ask=ecp                                                    | proxy DOOR as peer
ask=ecp external=yes                                       | redirect page
ask=ecp edition=sp2                                        | proxy DOOR as peer
ask=ecp edition=sp2 external=yes                           | redirect page
ask=ecp internal=none                                      | refuse no internal URL
ask=ecp integrated=no                                      | refuse no Integrated authentication
ask=ecp from_peer=yes                                      | refuse loop
ask=ecp external=yes internal=none                         | refuse no internal URL
ask=ecp external=yes integrated=no                         | refuse no Integrated authentication
ask=ecp external=yes from_peer=yes                         | refuse loop
ask=ecp edition=sp2 internal=none                          | refuse no internal URL
ask=ecp edition=sp2 integrated=no                          | refuse no Integrated authentication
ask=ecp edition=sp2 from_peer=yes                          | refuse loop
ask=ecp edition=sp2 external=yes internal=none             | redirect page
ask=ecp edition=sp2 external=yes integrated=no             | redirect page
ask=ecp edition=sp2 external=yes from_peer=yes             | refuse loop
ask=ecp external=yes switch=silent                         | redirect silent
ask=ecp switch=silent                                      | proxy DOOR as peer
ask=ecp external=yes switch=silent edition=sp2             | redirect silent
ask=ecp external=yes switch=off                            | proxy DOOR as peer
ask=ecp switch=off                                         | proxy DOOR as peer
ask=ecp external=yes switch=off edition=sp2                | proxy DOOR as peer
ask=ecp external=yes switch=off reach=basic                | refuse no Integrated authentication
ask=ecp external=yes switch=off integrated=no              | refuse no Integrated authentication
ask=ecp external=yes switch=off integrated=no edition=sp2  | refuse no Integrated authentication
ask=ecp external=yes switch=off from_peer=yes              | refuse loop

# Web services (C8, C11)
ask=ews                                                    | proxy DOOR as peer
ask=ews external=yes                                       | proxy DOOR as peer
ask=ews edition=sp2                                        | proxy DOOR as peer
ask=ews edition=sp2 external=yes                           | proxy DOOR as peer
ask=ews internal=none                                      | refuse no internal URL
ask=ews integrated=no                                      | refuse no Integrated authentication
ask=ews reach=basic                                        | refuse no Integrated authentication
ask=ews reach=header                                       | proxy DOOR
ask=ews internal=http                                      | refuse no internal URL
ask=ews from_peer=yes                                      | refuse loop
ask=ews external=yes internal=none                         | refuse no internal URL
ask=ews external=yes integrated=no                         | refuse no Integrated authentication
ask=ews external=yes reach=basic                           | refuse no Integrated authentication
ask=ews external=yes reach=header                          | proxy DOOR
ask=ews external=yes internal=http                         | refuse no internal URL
ask=ews external=yes from_peer=yes                         | refuse loop
ask=ews edition=sp2 internal=none                          | refuse no internal URL
ask=ews edition=sp2 integrated=no                          | refuse no Integrated authentication
ask=ews edition=sp2 reach=basic                            | refuse no Integrated authentication
ask=ews edition=sp2 reach=header                           | proxy DOOR
ask=ews edition=sp2 internal=http                          | refuse no internal URL
ask=ews edition=sp2 from_peer=yes                          | refuse loop
ask=ews edition=sp2 external=yes internal=none             | refuse no internal URL
ask=ews edition=sp2 external=yes integrated=no             | refuse no Integrated authentication
ask=ews edition=sp2 external=yes reach=basic               | refuse no Integrated authentication
ask=ews edition=sp2 external=yes reach=header              | proxy DOOR
ask=ews edition=sp2 external=yes internal=http             | refuse no internal URL
ask=ews edition=sp2 external=yes from_peer=yes             | refuse loop

# Availability (C8, C11)
ask=as                                                     | proxy DOOR as peer
ask=as external=yes                                        | proxy DOOR as peer
ask=as edition=sp2                                         | proxy DOOR as peer
ask=as edition=sp2 external=yes                            | proxy DOOR as peer
ask=as internal=none                                       | refuse no internal URL
ask=as integrated=no                                       | refuse no Integrated authentication
ask=as from_peer=yes                                       | refuse loop
ask=as external=yes internal=none                          | refuse no internal URL
ask=as external=yes integrated=no                          | refuse no Integrated authentication
ask=as external=yes from_peer=yes                          | refuse loop
ask=as edition=sp2 internal=none                           | refuse no internal URL
ask=as edition=sp2 integrated=no                           | refuse no Integrated authentication
ask=as edition=sp2 from_peer=yes                           | refuse loop
ask=as edition=sp2 external=yes internal=none              | refuse no internal URL
ask=as edition=sp2 external=yes integrated=no              | refuse no Integrated authentication
ask=as edition=sp2 external=yes from_peer=yes              | refuse loop

# Modern mailboxes elsewhere (C10, C12)
ask=imap mailbox=modern through=yes                        | proxy DOOR
ask=imap mailbox=modern through=yes from_peer=yes          | proxy MBX
ask=imap mailbox=modern through=yes door=none              | refuse no client access server
ask=imap mailbox=modern through=yes reach=header           | proxy DOOR
ask=imap mailbox=modern through=yes own=2010               | refuse version mismatch
ask=imap mailbox=modern through=yes door=2010              | refuse version mismatch
ask=pop3 mailbox=modern through=yes                        | proxy DOOR
ask=pop3 mailbox=modern through=yes from_peer=yes          | proxy MBX
ask=pop3 mailbox=modern through=yes door=none              | refuse no client access server
ask=pop3 mailbox=modern through=yes reach=header           | proxy DOOR
ask=pop3 mailbox=modern through=yes own=2010               | refuse version mismatch
ask=pop3 mailbox=modern through=yes door=2010              | refuse version mismatch
ask=owa mailbox=modern                                     | proxy MBX
ask=owa mailbox=modern through=yes                         | proxy DOOR as peer
ask=owa mailbox=modern through=yes from_peer=yes           | proxy MBX
ask=owa mailbox=modern through=yes door=none               | refuse no client access server
ask=owa mailbox=modern through=yes reach=header            | refuse no client access server
ask=owa mailbox=modern through=yes own=2010                | refuse version mismatch
ask=owa mailbox=modern through=yes door=2010               | refuse version mismatch
ask=activesync mailbox=modern                              | proxy MBX
ask=activesync mailbox=modern through=yes                  | proxy DOOR as peer
ask=activesync mailbox=modern through=yes from_peer=yes    | proxy MBX
ask=activesync mailbox=modern through=yes door=none        | refuse no client access server
ask=activesync mailbox=modern through=yes reach=header     | refuse no client access server
ask=activesync mailbox=modern through=yes own=2010         | refuse version mismatch
ask=activesync mailbox=modern through=yes door=2010        | refuse version mismatch
ask=ews mailbox=modern                                     | proxy MBX
ask=ews mailbox=modern through=yes                         | proxy DOOR as peer
ask=ews mailbox=modern through=yes from_peer=yes           | proxy MBX
ask=ews mailbox=modern through=yes door=none               | refuse no client access server
ask=ews mailbox=modern through=yes reach=header            | refuse no client access server
ask=ews mailbox=modern through=yes own=2010                | refuse version mismatch
ask=ews mailbox=modern through=yes door=2010               | refuse version mismatch
ask=owa mailbox=modern external=yes                        | proxy MBX
ask=owa mailbox=modern integrated=no                       | proxy MBX
ask=owa mailbox=modern internal=none                       | refuse no internal URL
ask=owa mailbox=modern present=no                          | refuse no virtual directory
ask=owa mailbox=modern own=2003                            | proxy MBX
ask=owa mailbox=modern through=yes present=no              | refuse no virtual directory
ask=owa mailbox=modern external=yes edition=sp2            | proxy MBX
ask=owa mailbox=modern from_peer=yes                       | proxy MBX
"""


def cases() -> list[tuple[str, Facts, str]]:
    """Name, facts and outcome of every line."""
    found = []
    for line in TABLE.splitlines():
        name, bar, outcome = line.partition("|")
        if bar and not line.startswith("#"):
            differences = dict(pair.split("=") for pair in name.split())
            found.append((name.strip(), Facts(**differences), outcome.strip()))
    return found
