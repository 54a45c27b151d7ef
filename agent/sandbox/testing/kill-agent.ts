import { spawn } from "node:child_process";
import { once } from "node:events";
import { programArgs } from "../../../shared/testing/program.ts";

/** Starts an agent, waits until its code runs, and kills it. Returns the id of the container that it leaves. */
export async function killAgent(doomedId: string, doomedName: string): Promise<string> {
  const program = programArgs("agent/sandbox/testing/doomed-agent.ts");
  const agent = spawn(process.execPath, [...program, doomedId, doomedName], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [containerId] = (await once(agent.stdout, "data")) as [Buffer];
  agent.kill("SIGKILL");
  return containerId.toString();
}
