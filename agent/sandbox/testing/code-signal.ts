import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { promisify } from "node:util";
import type Docker from "dockerode";
import { rawEngine } from "./raw-engine.ts";

/** A signal that code in containers waits for; the test sends it once everything else is in place. */
export type CodeSignal = {
  /** Python that waits for it. */
  readonly wait: string;
  /**
   * Sends it to all containers that agents of this name run now, and to the jobs that are forked in
   * them; some may end meanwhile.
   */
  readonly sendTo: (agentName: string, docker?: Docker) => Promise<void>;
};

export function makeCodeSignal(): CodeSignal {
  // A container that got another signal must still get this one.
  const file = `/tmp/signal-${randomUUID()}`;
  return {
    wait: `
import os, time
while not os.path.exists("${file}"):
    time.sleep(0.05)
`,
    sendTo: async (agentName, docker = rawEngine) => {
      const filters = { label: [`io.airlock.owner=${agentName}`], status: ["running"] };
      const running = await docker.listContainers({ filters });
      const touch = running.map(({ Id, Labels }) => {
        const container = docker.getContainer(Id);
        const isMother = Labels["io.airlock.lease"]?.startsWith("mother-");
        return isMother ? touchInJobs(container, file) : run(container, ["touch", file]);
      });
      await Promise.allSettled(touch);
    },
  };
}

async function run(container: Docker.Container, Cmd: string[]): Promise<void> {
  const command = await container.exec({ Cmd, AttachStdout: true });
  for await (const _ of await command.start({}));
}

/** Each job has its own /tmp, in which only users of its own namespace can make files. */
async function touchInJobs(mother: Docker.Container, file: string): Promise<void> {
  const { Processes } = (await mother.top({ ps_args: "-eo pid" })) as { Processes: string[][] };
  const touch = Processes.map(([pid]) => nsenter(["--target", pid!, ...inside, "touch", file]));
  await Promise.allSettled(touch);
}

const inside = ["--user", "--mount", "--setuid", "0", "--setgid", "0"];
const nsenter = (args: string[]) => promisify(execFile)("nsenter", args);
