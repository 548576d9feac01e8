#!/usr/bin/env bash
# A worker in shell, with curl and jq: it greets, one job after the other. Stop it with Ctrl-C.
set -euo pipefail
server=${PENSTOCK_SERVER:-http://127.0.0.1:8080}/api/v1
queue=${1:-greetings}
call() { # METHOD PATH BODY; what goes wrong on the way is asked again, which is safe: a number has one answer
  curl --silent --show-error --retry 100 --retry-all-errors --retry-max-time 600 --max-time 60 --request "$1" \
    --header 'Content-Type: application/json' ${PENSTOCK_TOKEN:+--header "Authorization: Bearer $PENSTOCK_TOKEN"} \
    --data "$3" "$server/$2"
}

register() { # anew, too, after it was declared dead: what it held goes to others
  ends='[]' number=1
  answer=$(call POST workers "$(jq -nc --arg q "$queue" '{name: "shell", queues: {($q): {greet: {}}}, concurrency: 1}')")
  worker=$(jq -er '.worker // empty' <<<"$answer") || { jq -r .detail <<<"$answer" >&2; exit 1; }
}

register
trap 'call DELETE "workers/$worker" ""' EXIT
trap 'exit 0' INT TERM
while true; do
  answer=$(call POST "workers/$worker/poll" "{\"number\": $number, \"ends\": $ends, \"want\": 1, \"wait\": 10}")
  [ "$(jq -r .code <<<"$answer")" != worker-gone ] || { register; continue; }
  jq -e .jobs <<<"$answer" >/dev/null || { jq -r .detail <<<"$answer" >&2; exit 1; }
  ends=$(jq -c '[.jobs[] | {job: .id, lease, end: "succeeded", result: "hello \(.args.name)"}]' <<<"$answer")
  number=$((number + 1))
done
