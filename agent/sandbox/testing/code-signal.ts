import { randomUUID } from "node:crypto";
import type Docker from "dockerode";
import { rawEngine } from "./raw-engine.ts";

/** A signal that code in containers waits for; the test sends it once everything else is in place. */
export type CodeSignal = {
  /** Python that waits for it. */
  readonly wait: string;
  /** Sends it to all containers that agents of this name run now; some may end meanwhile. */
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
      const touch = running.map(({ Id }) => run(docker.getContainer(Id), ["touch", file]));
      await Promise.allSettled(touch);
    },
  };
}

async function run(container: Docker.Container, Cmd: string[]): Promise<void> {
  const command = await container.exec({ Cmd, AttachStdout: true });
  for await (const _ of await command.start({}));
}
