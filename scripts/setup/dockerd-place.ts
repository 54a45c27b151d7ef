/** Where one dockerd keeps its files, and the options that make it so. */
export type DockerdPlace = {
  socket: string;
  pidFile: string;
  execRoot: string;
  logFile: string;
  args: string[];
};

/** The machine's own dockerd. No options: dockerd refuses one that daemon.json has too. */
export const MACHINE_DOCKERD: DockerdPlace = {
  socket: "/var/run/docker.sock",
  pidFile: "/var/run/docker.pid",
  execRoot: "/var/run/docker",
  logFile: "/var/log/airlock/dockerd.log",
  args: [],
};

/** A dockerd that lives in `dir` alone, with neither bridge nor iptables rules. */
export function privateDockerd(dir: string): DockerdPlace {
  const place = {
    socket: `${dir}/docker.sock`,
    pidFile: `${dir}/docker.pid`,
    execRoot: `${dir}/exec`,
    logFile: `${dir}/dockerd.log`,
  };
  const args = [
    `--host=unix://${place.socket}`,
    `--pidfile=${place.pidFile}`,
    `--exec-root=${place.execRoot}`,
    `--data-root=${dir}/data`,
    `--config-file=${dir}/daemon.json`,
    "--bridge=none",
    "--iptables=false",
  ];
  return { ...place, args };
}
