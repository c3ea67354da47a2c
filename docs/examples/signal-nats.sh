#!/bin/sh
# Publish a signal of a web department once a second, with the nats tool (https://github.com/nats-io/natscli).
#
#     signal-nats.sh NATS_URL DEPARTMENT USER NKEY_FILE SECONDS cpu|requests|claim VALUE
#
# `phoenix why DEPARTMENT` shows whether they count.
set -eu
case $6 in
  cpu) field=utilisation ;;
  requests) field=rate ;;
  claim) field=instances ;;
  *) echo "signal-nats.sh: $6 is not one of cpu, requests, claim" >&2; exit 2 ;;
esac
left=$5
while [ "$left" -gt 0 ]; do
  nats --server "$1" --nkey "$4" --inbox-prefix "_INBOX_$2.$3" \
    pub "phoenix.signal.$2.$3.$6" "{\"$field\": $7, \"source\": \"signal-nats.sh of $3\"}"
  left=$((left - 1))
  [ "$left" -eq 0 ] || sleep 1
done
