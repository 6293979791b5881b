#!/bin/sh
# Installs the Debian packages that tests use, when this machine lets us; else the tests say what is missing.
set -u
missing=""
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing:$missing"
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
  exit $?
fi
echo "not installed (tests that need it are skipped): apt-get install$missing"
[ -z "${CI:-}" ]
