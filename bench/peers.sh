# The peers of a benchmark; sourced by run.sh. Each function leaves what it
# made in $work and registers how to undo it with `later`.
#
#   docker        a container, entered with docker run and docker exec
#   forcecommand  what one would build in ten minutes: OpenSSH on this host,
#                 with a ForceCommand that runs docker exec
#   sshd-inside   OpenSSH inside of the container, reached over its bridge
#
# Containers and the sshd of this host come from one Debian tree with OpenSSH
# in it, which is kept in $cache: nothing is installed on the host.

image=sandgate-bench
container=

peer_tree() {
  tree=$cache/debian-sshd
  [ -e "$tree/.complete" ] && return 0
  echo "bench: bootstrapping a Debian with OpenSSH for the peers, once"
  rm -rf "$tree"
  mkdir -p "$cache"
  local suite=bookworm
  if [ -r /etc/os-release ]; then suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm); fi
  mmdebstrap --quiet --mode=root --variant=minbase --include=openssh-server "$suite" "$tree" >"$work/mmdebstrap.log" 2>&1 || {
    tail -n 5 "$work/mmdebstrap.log" >&2
    return 1
  }
  # No rc file of a shell belongs into the numbers.
  sed -i 's|^root:\(.*\):/bin/bash$|root:\1:/bin/sh|' "$tree/etc/passwd"
  touch "$tree/.complete"
}

# A setting for both: public key only, no lookups, no PAM.
peer_sshd_config() { # port, more lines
  cat <<END
Port $1
HostKey /etc/ssh/bench_host_key
AuthorizedKeysFile /etc/ssh/bench_authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
StrictModes no
PidFile none
MaxStartups 200
MaxSessions 200
PrintMotd no
Subsystem sftp internal-sftp
END
}

peer_container() {
  local id
  id=$(tar -C "$tree" --exclude=./.complete -c . | docker import - "$image:$$")
  later docker image rm -f "$id"
  container=sandgate-bench-$$
  docker run -d --name "$container" "$image:$$" sleep infinity >/dev/null
  later docker rm -f "$container"
}

peer_sshd_inside() {
  local in="docker exec -i $container"
  $in sh -c 'cat >/etc/ssh/bench_host_key && chmod 600 /etc/ssh/bench_host_key' <"$work/peer_host_key"
  $in sh -c 'cat >/etc/ssh/bench_authorized' <"$key.pub"
  peer_sshd_config 22 | $in sh -c 'cat >/etc/ssh/bench_config'
  $in sh -c 'mkdir -p /run/sshd'
  docker exec -d "$container" /usr/sbin/sshd -D -f /etc/ssh/bench_config
  inside_address=$(docker inspect -f '{{.NetworkSettings.IPAddress}}' "$container")
  [ -n "$inside_address" ] || return 1
  answers root@"$inside_address" 22
}

# sshd of the tree on this host, in a mount namespace of its own that sees the
# host's docker client and socket.
peer_forcecommand() {
  local root=$work/forcecommand
  mkdir "$root"
  cp -a "$tree/." "$root/"
  install -m 600 "$work/peer_host_key" "$root/etc/ssh/bench_host_key"
  install -m 644 "$key.pub" "$root/etc/ssh/bench_authorized"
  { peer_sshd_config "$1"; echo "ListenAddress 127.0.0.1"; echo "ForceCommand /enter"; } >"$root/etc/ssh/bench_config"
  cat >"$root/enter" <<END
#!/bin/sh
if [ -t 0 ]; then t=-it; else t=-i; fi
if [ -n "\$SSH_ORIGINAL_COMMAND" ]; then exec docker exec \$t $container sh -c "\$SSH_ORIGINAL_COMMAND"; fi
exec docker exec \$t $container sh
END
  chmod 755 "$root/enter"
  mkdir -p "$root/run/sshd" "$root/var/run"
  touch "$root/usr/bin/docker" "$root/run/docker.sock"
  unshare --mount --propagation private sh -c '
    mount --rbind /dev "$1/dev" && mount --rbind /proc "$1/proc" &&
    mount --bind "$(readlink -f "$(command -v docker)")" "$1/usr/bin/docker" &&
    mount --bind /var/run/docker.sock "$1/run/docker.sock" &&
    exec chroot "$1" /usr/sbin/sshd -D -f /etc/ssh/bench_config' sh "$root" >"$work/sshd.log" 2>&1 &
  later end $!
  answers root@127.0.0.1 "$1"
}
