# Runs an engine as a container's first process, with a socket for the group of the agent.
socket=/run/airlock/engine.sock
groups=/sys/fs/cgroup
if [ -e $groups/cgroup.controllers ]; then
  # A group with processes of its own cannot give controllers to the groups of jobs.
  mkdir -p $groups/init
  echo 1 >$groups/init/cgroup.procs
  sed 's/^/+/; s/ / +/g' $groups/cgroup.controllers >$groups/cgroup.subtree_control
fi
# What an engine that was killed left.
rm -rf $socket /var/run/docker.pid
# Images are in Docker's own store, and names of the pod are not those of its jobs.
echo '{"features": {"containerd-snapshotter": false}}' >/run/daemon.json
printf '[containers]\nbase_hosts_file = "none"\n' >/run/containers.conf
export CONTAINERS_CONF=/run/containers.conf
"$@" &
engine=$!
trap 'kill -TERM $engine' TERM
until [ -S $socket ] || ! kill -0 $engine; do sleep 0.1; done
chgrp 10001 $socket
chmod 660 $socket
# Ends with the engine, after a signal too, and reaps what it leaves meanwhile.
while kill -0 $engine 2>/dev/null; do wait $engine || :; done
