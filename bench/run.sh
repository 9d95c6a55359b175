#!/usr/bin/env bash
# Measures sandgate beside docker and OpenSSH on this machine, interleaved, and
# prints one table. See README.md; BENCH_QUICK=1 takes few samples, to see that
# everything runs.
#
# Needs root, for the peers; where there is no Docker engine, or the peers
# cannot be made, it says so and measures what is left.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1

if [ -z "${BENCH_INNER:-}" ]; then
  "$here/../scripts/deps.sh" bench
  BENCH_INNER=1 exec "$here/../scripts/with-docker.sh" "$0" "$@"
fi

sandgate=${SANDGATE:-$(dirname "$here")/bin/sandgate}
engine=${BENCH_ENGINE:-gvisor}
runtime=${BENCH_RUNTIME:-host:latest}
out=${BENCH_OUT:-$(dirname "$here")/bin/bench}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandgate-bench
work=$(mktemp -d)
key=$work/key

undo=()
later() { undo=("$(printf '%q ' "$@")" "${undo[@]}"); }
finish() {
  for step in "${undo[@]}"; do eval "$step" >/dev/null 2>&1 || true; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
end() { kill "$1" && wait "$1"; }

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client="-F none -i $key -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=$work/known_hosts -o LogLevel=ERROR"
answers() { # destination, port
  for _ in $(seq 100); do
    # shellcheck disable=SC2086
    ssh $client -o BatchMode=yes -p "$2" "$1" true </dev/null >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
}
# shellcheck source=bench/peers.sh
. "$here/peers.sh"
# shellcheck source=bench/ours.sh
. "$here/ours.sh"

ssh-keygen -q -t ed25519 -N '' -C bench -f "$key"
ssh-keygen -q -t ed25519 -N '' -C bench -f "$work/peer_host_key"

# Ours.
ours_port=$(port)
serve_ours() { serve ours --engine "$engine" --ssh "127.0.0.1:$ours_port" --ssh-limit connections=2000,sessions=2000; }
serve_ours
later unserve ours
at ours key add "$key.pub" >/dev/null
box=$(at ours create --name bench </dev/null)
later empty ours
[ "$engine" != docker ] || forget_docker ours >/dev/null
answers "$box@127.0.0.1" "$ours_port" || { echo "bench: the gateway does not answer" >&2; tail "$work/ours.log" >&2; exit 1; }

ours="sandgate=ssh:$client -p $ours_port $box@127.0.0.1"
ours_curve="sandgate-curve=ssh:$client -o KexAlgorithms=curve25519-sha256 -p $ours_port $box@127.0.0.1"
ours_door="sandgate=door:sandgate $(socket ours)"
ssh_peers=() inside=() throng=()
start=() api=() doors=()
new_peers=() stopped=() warm=()

# Theirs.
if ! docker version >/dev/null 2>&1; then
  echo "bench: no Docker engine answers, so there is nothing to compare with"
elif [ "$(id -u)" != 0 ]; then
  echo "bench: not root, so the peers cannot be set up; ours alone"
elif ! peer_tree || ! peer_container; then
  echo "bench: the container of the peers cannot be made; ours alone"
else
  fresh="docker run -d --network none --name sandgate-bench-{i} $image:$$ sleep infinity"
  drop="docker rm -f sandgate-bench-{i}"
  start+=("docker run + exec=sh:$fresh && docker exec sandgate-bench-{i} echo hi ;; $drop"
    "docker run --rm=sh:docker run --rm --network none $image:$$ echo hi")
  api+=("docker=docker:$container")
  doors+=("docker=door:docker $image:$$ $image-$$")
  later docker_rid "label=$image-$$"
  new_peers+=("docker exec=exec:docker exec -i $container sh -c || docker exec -it $container sh -c")
  peer_port=$(port)
  if peer_forcecommand "$peer_port"; then
    ssh_peers+=("forcecommand=ssh:$client -p $peer_port root@127.0.0.1")
    new_peers+=("forcecommand-curve=ssh:$client -o KexAlgorithms=curve25519-sha256 -p $peer_port root@127.0.0.1")
  else
    echo "bench: sshd with ForceCommand does not start here:"
    tail -n 3 "$work/sshd.log"
  fi
  if peer_sshd_inside; then
    inside+=("sshd-inside=ssh:$client -p 22 root@$inside_address")
    ssh_peers+=("${inside[@]}")
    # A thousand key exchanges of OpenSSH's own take two minutes.
    throng+=("sshd-inside=ssh:$client -o KexAlgorithms=curve25519-sha256 -p 22 root@$inside_address")
  else
    echo "bench: sshd in the container cannot be reached"
  fi
fi
start+=("sandgate=sh:$(mine ours create --name b{i}) >/dev/null && $(mine ours exec b{i} -- echo hi) ;; $(mine ours delete b{i})"
  "sandgate run=sh:$(mine ours run -- echo hi)")
api+=("sandgate=sandgate:$(socket ours) $box")

# Ours in other ways.
if [ "$engine" = gvisor ]; then
  ready=4
  ready_dir=$work/warm/sandboxes/gvisor/box
  serve warm --engine gvisor --ssh off --warm $ready
  later unserve warm
  later empty warm
  # One with a name has it as its host's, so none that is ready fits it.
  again="until [ \$(ls $ready_dir | wc -l) -ge $ready ]; do sleep 0.05; done; sleep 1"
  start+=("sandgate warm=sh:id=\$($(mine warm create)) && echo \$id >$work/id-{i} && $(mine warm exec) \$id -- echo hi ;; $(mine warm delete) \$(cat $work/id-{i}); $again")
  warm+=("sandgate warm=door:sandgate $(socket warm) $ready_dir $ready")
  if docker version >/dev/null 2>&1 && serve stopped --engine docker --ssh off --network off; then
    later unserve stopped
    later empty stopped
    forget_docker stopped >/dev/null
    stopped+=("sandgate on docker=door:sandgate $(socket stopped)")
  else
    echo "bench: nothing to measure a pause without memory with"
  fi
fi

n() { if [ -n "${BENCH_QUICK:-}" ] && [ "$1" -gt 2 ]; then echo 2; else echo "$1"; fi; }
small=()
if [ -n "${BENCH_QUICK:-}" ]; then small=(--bytes $((16 << 20)) --keys 20 --sessions 5 --batch 8 --crowd 50 --throng 40); fi
rm -rf "$out"
mkdir -p "$out"
take() { # test, rounds, targets
  local test=$1 rounds=$2
  shift 2
  "$here/measure.py" "$test" -n "$(n "$rounds")" "${small[@]}" --json "$out/$test.json" "$@"
}

echo "sandgate $("$sandgate" version | head -1), engine $engine, runtime $runtime"
echo "$(nproc) processors, $(uname -sr), $(ssh -V 2>&1), docker $(docker version -f '{{.Server.Version}}' 2>/dev/null || echo none)"
take intact 1 "${ssh_peers[@]}" "$ours"
take start 10 "${start[@]}"
take first 10 "${doors[@]}" "$ours_door" "${warm[@]}"
unserve warm
take pause 10 "${doors[@]}" "$ours_door" "${stopped[@]}"
take pause256 5 "${doors[@]}" "$ours_door"
take snapshot10 5 "${doors[@]}" "$ours_door" "${stopped[@]}"
take snapshot500 3 "${doors[@]}" "$ours_door"
take fork 5 "${doors[@]}" "$ours_door" "${stopped[@]}"
take rate2 3 "${doors[@]}" "$ours_door"
take rate4 3 "${doors[@]}" "$ours_door" "${stopped[@]}"
unserve stopped
serve many --engine "$engine" --ssh off --network off
later unserve many
[ "$engine" != docker ] || forget_docker many >/dev/null
"$here/listing.py" -n "$(n 40)" --json "$out/list.json" "$(socket many)" "$work/many/state.db"
unserve many
take api 30 "${api[@]}"
take new 20 "${ssh_peers[@]}" "${new_peers[@]}" "$ours" "$ours_curve"
take mux 20 "${ssh_peers[@]}" "$ours"
take down 5 "${ssh_peers[@]}" "$ours"
take up 5 "${ssh_peers[@]}" "$ours"
take sftp-put 5 "${inside[@]}" "$ours"
take sftp-get 5 "${inside[@]}" "$ours"
take echo 5 "${ssh_peers[@]}" "$ours"
take reattach 20 "$ours"
# A server that has just started has no memory left over from other tests to
# hide the sessions in. The sandbox goes on meanwhile.
unserve ours
serve_ours
answers "$box@127.0.0.1" "$ours_port"
take fan 1 "${ssh_peers[@]}" "$ours"
unserve ours
serve_ours
answers "$box@127.0.0.1" "$ours_port"
take throng 1 "${throng[@]}" "$ours_curve"
take crowd 1 "${doors[@]}" "$ours_door"

echo
"$here/report.py" "$out" | tee "$out/table.md"
echo
echo "samples: $out"
