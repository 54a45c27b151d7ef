import { randomUUID } from "node:crypto";
import type Docker from "dockerode";
import { rawEngine } from "./raw-engine.ts";

/** Code in containers waits for it; the test sends it when everything else is as it should be. */
export type CodeSignal = {
  /** Python that waits for it. */
  readonly wait: string;
  /** Sends it to all that agents of this name run now; containers that end meanwhile are fine. */
  readonly sendTo: (agentName: string, docker?: Docker) => Promise<void>;
};

export function makeCodeSignal(): CodeSignal {
  // A waiting container that got another signal must not take this one for sent.
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
