"""rspamd: judges messages by HTTP, for the content hook. Only what is built in works: no lookups, no store, no rules.

Of the built-in patterns, a message with `GTUBE[action]` in its body gets that action.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gatepost.lab.servers.process import ServerProcess, as_account, require_program

PACKAGES = ("rspamd",)
ACCOUNT = "_rspamd"
_TAIL = "*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
GTUBE = {"reject": f"XJS{_TAIL}", "add header": f"YJS{_TAIL}", "rewrite subject": f"ZJS{_TAIL}"}


class Rspamd(ServerProcess):
    """One rspamd with one worker. `url` is what the hook's settings want."""

    def __init__(self, directory: Path, address: str, port: int, *, name: str = "rspamd") -> None:
        """Raises `ServerMissing`."""
        program = require_program("rspamd", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        argv = [program, "--no-fork", "--config", str(directory / "rspamd.conf")]
        if os.geteuid() == 0:
            shutil.chown(directory, ACCOUNT, ACCOUNT)
            argv = as_account(ACCOUNT, argv)
        super().__init__(name, argv, directory, [(address, port)])
        self.url = f"http://{address}:{port}"
        # Its own list of public suffixes takes seconds to compile.
        (directory / "suffixes").write_text("com\norg\nexample\n")
        (directory / "rspamd.conf").write_text(_CONFIGURATION.format(base=directory, address=address, port=port))


_CONFIGURATION = """\
options {{
  pidfile = "{base}/rspamd.pid";
  tempdir = "{base}";
  hs_cache_dir = "{base}";
  control_socket = "{base}/rspamd.sock mode=0600";
  filters = "";
  url_tld = "{base}/suffixes";
  enable_test_patterns = true;
  local_addrs = [];
  dns {{ nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }}
}}
logging {{ type = "console"; level = "notice"; color = false; }}
actions {{ reject = 15; add_header = 6; greylist = 4; rewrite_subject = 8; }}
worker "normal" {{ bind_socket = "{address}:{port}"; count = 1; }}
"""
