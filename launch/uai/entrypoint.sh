#!/bin/sh
# Entry point of the images. Runs a command as the user LOCAL_USER_ID, so that its output files belong to the caller:
#
#   podman run -e LOCAL_USER_ID=$(id -u) -e LOCAL_GROUP_ID=$(id -g) IMAGE COMMAND...
#
# Creates the user and the group, and drops root. The group is LOCAL_GROUP_ID, or has the number of the user.
# Without LOCAL_USER_ID, or if it is 0, the command runs as the user who started the container.
# An id that the image already has keeps its account. A second start of the container finds the account of the first.
# In a rootless container, root is the caller outside. Then the command stays root if LOCAL_USER_ID is the caller.
# Exits with 78 if a value is wrong, else with the exit code of the command.
set -u

say() { printf '[entry] %s\n' "$1" >&2; }

fail() {
  say "$1"
  echo "entrypoint: exit 78 (bad configuration)" >&2
  exit 78
}

# read_id NAME VALUE FLAG: sets number to VALUE without leading zeros. FLAG is the option of the program id.
read_id() {
  want="want a whole number from 0 to 4294967294; pass -e $1=\$(id $3)"
  case $2 in
    *[!0-9]*) fail "$1: not a number: got '$(printf '%s' "$2" | tr -c '[:print:]' '?')', $want" ;;
  esac
  number=$2
  while [ "${#number}" -gt 1 ] && [ "${number#0}" != "$number" ]; do number=${number#0}; done
  if [ "${#number}" -gt 10 ] || [ "$number" -gt 4294967294 ]; then fail "$1: too large: got $2, $want"; fi
}

# check_mapped NAME ID MAP: fails if the user namespace of the container does not have this id.
check_mapped() {
  [ -r "$3" ] || return 0
  last=0
  while read -r inside _ count; do
    if [ "$2" -ge "$inside" ] && [ "$2" -lt $((inside + count)) ]; then return 0; fi
    last=$((inside + count - 1))
  done <"$3"
  fail "$1: this container does not have the id: got $2, want at most $last; in a rootless container, leave out $1"
}

# The user id outside of this user namespace that root has.
root_outside() {
  while read -r inside outside _; do
    if [ "$inside" = 0 ]; then echo "$outside"; fi
  done </proc/self/uid_map
}

field() { getent "$1" "$2" | cut -d: -f"$3"; }

# free_name DATABASE ID: prints a name that no account has.
free_name() {
  if getent "$1" user >/dev/null; then echo "user$2"; else echo user; fi
}

# change PROGRAM ARGUMENT...: runs a program that changes accounts, and prints its output only if it fails.
change() {
  output=$("$@" 2>&1) && return 0
  say "the command runs without a user name, which jobs on several hosts need: $(printf '%s' "$output" | tr '\n' ' ')"
  return 1
}

# Sets HOME, USER and LOGNAME, and creates the accounts and the home folder if they are missing.
prepare_account() {
  if ! getent group "$gid" >/dev/null; then change groupadd --gid "$gid" "$(free_name group "$gid")" || return; fi
  name=$(field passwd "$uid" 1)
  if [ -z "$name" ]; then
    name=$(free_name passwd "$uid")
    change useradd --uid "$uid" --gid "$gid" --home-dir "/home/$name" --no-create-home --shell /bin/sh --no-log-init \
      --password '*' "$name" || return
  elif [ "$name" != user ] && [ "$name" != "user$uid" ]; then
    say "LOCAL_USER_ID: the image has an account with user id $uid; running as $name"
    case $(field passwd "$uid" 7) in
      */nologin | */false) change usermod --home "/home/$name" --shell /bin/sh "$name" || return ;; # ssh needs a shell
    esac
  fi
  HOME=$(field passwd "$uid" 6)
  if [ ! -d "$HOME" ]; then mkdir -p "$HOME" && chown "$uid:$gid" "$HOME" && chmod 700 "$HOME"; fi
  export HOME USER="$name" LOGNAME="$name"
}

[ $# -gt 0 ] || set -- bash
if [ -z "${LOCAL_USER_ID:-}" ]; then
  [ -z "${LOCAL_GROUP_ID:-}" ] || fail "LOCAL_GROUP_ID: there is no LOCAL_USER_ID: got $LOCAL_GROUP_ID; set both, or none"
  exec "$@"
fi
read_id LOCAL_USER_ID "$LOCAL_USER_ID" -u
uid=$number
read_id LOCAL_GROUP_ID "${LOCAL_GROUP_ID:-$uid}" -g
gid=$number
now=$(id -u)
if [ "$uid" = "$now" ]; then exec "$@"; fi
if [ "$now" != 0 ]; then
  fail "LOCAL_USER_ID: only root can change the user: got a container that runs as user $now; leave out --user or LOCAL_USER_ID"
fi
if [ "$uid" = "$(root_outside)" ]; then exec "$@"; fi
check_mapped LOCAL_USER_ID "$uid" /proc/self/uid_map
check_mapped LOCAL_GROUP_ID "$gid" /proc/self/gid_map
HOME=/tmp
export HOME
prepare_account

# The groups of podman run --group-add stay. Group 0 does not: it may write /etc/passwd.
groups=
for group in $(id -G); do
  if [ "$group" != 0 ] && [ "$group" != "$gid" ]; then groups=$groups${groups:+,}$group; fi
done
if [ -n "$groups" ]; then groups=--groups=$groups; else groups=--clear-groups; fi
output=$(setpriv --reuid="$uid" --regid="$gid" "$groups" --inh-caps=-all -- true 2>&1) ||
  fail "LOCAL_USER_ID: cannot drop root: $output; give the container the capabilities SETUID and SETGID"
exec setpriv --reuid="$uid" --regid="$gid" "$groups" --inh-caps=-all -- "$@"
