#!/bin/sh
# Submit a job script over HTTP, with curl alone.
#
#     submit.sh HTTP_URL TOKEN_FILE SCRIPT
#
# The token goes through standard input, so that it is in no process list.
set -eu
printf 'Authorization: Bearer %s\n' "$(cat "$2")" |
  curl --silent --show-error --fail-with-body -H @- -H 'Content-Type: application/json' \
    --data "$(python3 -c 'import json, sys; print(json.dumps({"script": sys.stdin.read()}))' < "$3")" \
    "$1/v1/jobs"
echo
