#!/bin/sh
# Prometheus beside a cloud that runs on this machine, to look at metrics and alerts (docs/reference/alerts.md).
#
#   sh deploy/prometheus/try.sh [MONITOR_URL [OPTION...]]     without it: that of `phoenix status`; options are Prometheus' own
#
# It listens on 127.0.0.1:9090 (PORT=9091 for another one) and ends with Ctrl-C; its series are in a temporary directory.
# Alerts are shown and not sent: an Alertmanager on this machine has an owner.  ALERTMANAGER=127.0.0.1:9093 names one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
PATH=$root/.venv/bin:$PATH:$root/.tools/bin
PORT=${PORT-9090}

fail() {
    echo "try: $1" >&2
    exit 1
}

command -v prometheus >/dev/null || fail "there is no prometheus: as root, apt-get install prometheus; or, in a checkout, make setup"
monitor=${1-$(phoenix status --json | python3 -c 'import json, sys; print(json.load(sys.stdin).get("monitor_url") or "")')} || monitor=
[ -n "$monitor" ] || fail "no cloud runs here (phoenix up --detach), or name its monitor: sh deploy/prometheus/try.sh http://HOST:PORT"
[ $# -eq 0 ] || shift
work=$(mktemp -d)
cp -R "$here/rules" "$here/targets" "$work"
if [ -n "${ALERTMANAGER-}" ]; then
    told="s#127.0.0.1:9093#$ALERTMANAGER#"
else
    told='/^alerting:/,/^$/d'
fi
sed -e "s#http://127.0.0.1:7481#$monitor#" -e "$told" "$here/prometheus.yml" >"$work/prometheus.yml"
# Debian's has the pages of old only (/classic), and looks for their templates where its package is installed.
program=$(command -v prometheus)
pages=${program%/bin/*}/prometheus/usr/share/prometheus/web
[ ! -d "$pages" ] || set -- "--web.local-assets=$pages" "$@"

answers() {
    python3 - "http://127.0.0.1:$PORT" "$@" <<'END'
import sys, urllib.request
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # it is this machine: no proxy
for path in sys.argv[2:]:
    try:
        ask(sys.argv[1] + path, timeout=5).close()
    except OSError:
        continue
    sys.exit(print(sys.argv[1] + path))
sys.exit(1)
END
}

cd "$work"
prometheus --config.file=prometheus.yml --storage.tsdb.path=series --web.listen-address="127.0.0.1:$PORT" --log.level=warn "$@" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server"; rm -rf "$work"' EXIT
trap 'exit 0' INT TERM
until answers /-/ready >/dev/null; do
    kill -0 "$server" 2>/dev/null || fail "prometheus has ended; it says why above"
    sleep 0.2
done
echo "Prometheus for $monitor: $(answers /alerts /classic/alerts /api/v1/alerts)"
wait "$server"
