#!/usr/bin/env bash
# See to it that the browser tests have a Chromium. Called by make; without one the tests must fail, not skip.
set -euo pipefail

command -v chromium >/dev/null && exit 0
install="apt-get update && apt-get install --yes --no-install-recommends chromium"
if command -v apt-get >/dev/null; then
  if [[ $(id -u) == 0 ]]; then
    as_root=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "error: the browser tests need Chromium, and installing it needs root. Run: sudo sh -c '$install'" >&2
    exit 1
  fi
  echo "Installing chromium"
  log="$(mktemp)"
  if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "$install" </dev/null >"$log" 2>&1 && command -v chromium >/dev/null; then
    rm -f "$log"
    exit 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  echo "error: chromium could not be installed, see above. The command was: $install" >&2
  exit 1
fi
echo "error: the browser tests need Chromium: install it so that 'chromium' is found on the PATH" >&2
exit 1
