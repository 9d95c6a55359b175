# The servers of a benchmark; sourced by run.sh. Each has a state folder of its
# own under $work, and its name is that folder's.
#
#   ours     the engine that is measured, with the ssh gateway
#   warm     the same with sandboxes kept ready
#   stopped  the docker engine, whose pause keeps files and no memory
#   many     one with a long list of sandboxes

declare -A server

serve() { # name, more arguments of serve
  local name=$1
  shift
  mkdir -p -m 700 "$work/$name"
  "$sandgate" serve --state "$work/$name" --default-runtime "$runtime" "$@" >>"$work/$name.log" 2>&1 &
  server[$name]=$!
  for _ in $(seq 100); do
    [ -S "$(socket "$name")" ] && at "$name" list >/dev/null 2>&1 && return 0
    kill -0 "${server[$name]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "bench: the server $name does not start" >&2
  tail "$work/$name.log" >&2
  return 1
}

# Ends a server; what it keeps ready goes with it.
unserve() { # name
  [ -z "${server[$1]:-}" ] || end "${server[$1]}" || true
  unset "server[$1]"
}

socket() { echo "$work/$1/sandgate.sock"; }

at() { # name of a server, a command for it
  SANDGATE_STATE=$work/$1 "$sandgate" "${@:2}"
}

# The same as a piece of a shell's command line.
mine() { echo "SANDGATE_STATE='$work/$1' '$sandgate' ${*:2}"; }

# Deletes what a measurement that was cut off left.
empty() { # name
  local one
  [ -n "${server[$1]:-}" ] || return 0
  for one in $(at "$1" list --limit 100 --json | grep -o 'sbx_[a-z0-9]*' | sort -u); do at "$1" delete "$one"; done
}

# Has what a server's docker engine keeps for the next sandbox, images and
# volumes, removed in the end. A sandbox says how they are marked.
forget_docker() { # name
  local one mark
  one=$(at "$1" create)
  mark=$(docker ps -a --filter "label=sandgate.id=$one" --format '{{.Label "sandgate.state"}}')
  at "$1" delete "$one"
  [ -z "$mark" ] || later docker_rid "label=sandgate.state=$mark"
}

docker_rid() { # filter
  docker ps -aq --filter "$1" | xargs -r docker rm -fv
  docker images -q --filter "$1" | sort -u | xargs -r docker rmi -f
  docker volume ls -q --filter "$1" | xargs -r docker volume rm -f
}
