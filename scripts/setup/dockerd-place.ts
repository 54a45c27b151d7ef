/** Where one dockerd keeps its files, and the command and options that make it so. */
export type DockerdPlace = {
  command: string;
  socket: string;
  pidFile: string;
  execRoot: string;
  logFile: string;
  args: string[];
};

/** The machine's own dockerd. No options: dockerd refuses one that daemon.json has too. */
export const MACHINE_DOCKERD: DockerdPlace = {
  command: "dockerd",
  socket: "/var/run/docker.sock",
  pidFile: "/var/run/docker.pid",
  execRoot: "/var/run/docker",
  logFile: "/var/log/airlock/dockerd.log",
  args: [],
};
