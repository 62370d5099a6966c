#!/usr/bin/env bash
# Install the front end's tools as locked, or leave them alone when they already are that. Called by make.
set -euo pipefail
cd "$(dirname "$0")/../js"
stamp=node_modules/.genscope-setup

fail() { echo "error: $1" >&2; exit 1; }

command -v node >/dev/null && command -v npm >/dev/null \
  || fail "Node.js and npm are needed for the front end's checks and tests; install Node.js 20 or newer (on Debian: apt-get install nodejs npm)"
node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' \
  || fail "Node.js $(node --version) is too old; 20 or newer is needed"
wanted="$(cat package-lock.json package.json <(node --version) | cksum)"
[[ -f $stamp && "$(cat "$stamp")" == "$wanted" ]] && exit 0
echo "Installing the front end's tools"
npm ci --no-audit --no-fund --loglevel=error || fail "npm ci failed; see above"
echo "$wanted" > "$stamp"
