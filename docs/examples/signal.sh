#!/bin/sh
# Publish a signal of a web department once over HTTP, with curl alone.
#
#     signal.sh HTTP_URL TOKEN_FILE DEPARTMENT cpu UTILISATION
#     signal.sh HTTP_URL TOKEN_FILE DEPARTMENT requests RATE [TARGET]
#     signal.sh HTTP_URL TOKEN_FILE DEPARTMENT claim INSTANCES
#
# Ends with 22 if the door refuses it; the answer says why.
set -eu
case $4 in
  cpu) signal="{\"utilisation\": $5, \"source\": \"signal.sh\"}" ;;
  requests) signal="{\"rate\": $5, ${6:+\"target\": $6, }\"source\": \"signal.sh\"}" ;;
  claim) signal="{\"instances\": $5, \"source\": \"signal.sh\"}" ;;
  *) echo "signal.sh: $4 is not one of cpu, requests, claim" >&2; exit 2 ;;
esac
printf 'Authorization: Bearer %s\n' "$(cat "$2")" |
  curl --silent --show-error --fail-with-body -H @- -H 'Content-Type: application/json' \
    --data "$signal" "$1/v1/signals/$3/$4"
echo
