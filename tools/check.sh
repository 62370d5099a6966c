#!/usr/bin/env bash
# All checks that run no tests. Each runs even when an earlier one failed. Called by `make check`.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()

step() { # name, what to do about a failure, command...
  local name="$1" hint="$2" log
  shift 2
  log="$(mktemp)"
  if "$@" >"$log" 2>&1 </dev/null; then
    echo "ok      $name"
  else
    echo "FAILED  $name${hint:+ ($hint)}"
    sed 's/^/        /' "$log"
    failed+=("$name")
  fi
  rm -f "$log"
}

step "Python formatting" "make format" .venv/bin/ruff format --check .
step "Python lint" "" .venv/bin/ruff check .
step "Python types" "" .venv/bin/mypy
step "JavaScript lint" "make format" npm --prefix js run --silent lint
step "JavaScript types" "" npm --prefix js run --silent typecheck
step "generated files" "make generate" .venv/bin/python tools/generated.py check
step "demo notebook" "" .venv/bin/python tools/notebook.py check demo.ipynb

if ((${#failed[@]})); then
  echo "error: ${#failed[@]} of 7 checks failed" >&2
  exit 1
fi
