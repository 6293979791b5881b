#!/bin/sh
# Installs the Debian packages that tests use, when this machine lets us; else the tests say what is missing.
set -u
missing=""
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ] || missing="$missing nginx-light"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing:$missing"
  # Tests start servers of their own: nothing that a package brings is to run beside them.
  mkdir -p /etc/postgresql-common 2>/dev/null
  [ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends $missing >/dev/null
  exit $?
fi
echo "not installed (tests that need it are skipped): apt-get install$missing"
[ -z "${CI:-}" ]
