#!/bin/sh
# Publish a web department's CPU signal once over HTTP, with curl alone.
#
#     signal.sh HTTP_URL TOKEN_FILE DEPARTMENT UTILISATION
set -eu
printf 'Authorization: Bearer %s\n' "$(cat "$2")" |
  curl --silent --show-error --fail-with-body -H @- -H 'Content-Type: application/json' \
    --data "{\"utilisation\": $4}" "$1/v1/signals/$3/cpu"
echo
