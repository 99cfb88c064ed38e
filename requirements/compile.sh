#!/bin/sh
# Makes the hashed requirements files anew from pyproject.toml. They name no registry: pip's own settings choose it.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
[ -x "$uv" ] || .venv/bin/python -m pip install --quiet uv
export UV_CUSTOM_COMPILE_COMMAND="requirements/compile.sh"
common="--generate-hashes --no-emit-index-url --universal --python-version 3.11 --quiet"
$uv pip compile pyproject.toml $common "$@" -o requirements/run.txt
$uv pip compile pyproject.toml --group dev --extra sql --extra redis $common "$@" -c requirements/run.txt -o requirements/dev.txt
# Apart, because it is compiled where it is installed: not every machine can.
$uv pip compile pyproject.toml --extra ldap $common "$@" -c requirements/dev.txt -o requirements/ldap.txt
echo "gssapi>=1.9" | $uv pip compile - $common "$@" -o requirements/kerberos.txt
