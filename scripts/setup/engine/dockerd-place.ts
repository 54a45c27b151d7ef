/** The files of one dockerd, and the command and options that start it there. */
export type DockerdPlace = {
  command: string;
  socket: string;
  pidFile: string;
  execRoot: string;
  logFile: string;
  args: string[];
};

/** The machine's own dockerd. No options: dockerd refuses an option that daemon.json also sets. */
export const MACHINE_DOCKERD: DockerdPlace = {
  command: "dockerd",
  socket: "/var/run/docker.sock",
  pidFile: "/var/run/docker.pid",
  execRoot: "/var/run/docker",
  logFile: "/var/log/airlock/dockerd.log",
  args: [],
};
