/** Runs endless code in a container, reports that it started, and waits to be killed. Arguments: its id and name. */
import { tmpdir } from "node:os";
import { openSandbox } from "../backends/containers.ts";
import { showAlive } from "../host/alive.ts";
import { specWith, testEngine } from "./engine.ts";

const [, , agentId = "", agentName = ""] = process.argv;
using _life = await showAlive(agentId);
const { engine, image } = await testEngine();
const labels = { agentId, agentName, leaseId: null };
const never = new AbortController().signal;
const sandbox = await openSandbox(engine, specWith({ image, labels }), never);
await sandbox.run(
  {
    code: "import time; time.sleep(600)",
    inputJson: "{}",
    timeoutMs: 600_000,
    caps: { streamBytes: 1000, artifactBytes: 0 },
  },
  { signal: never, spoolDir: tmpdir(), onStarted: () => process.stdout.write(sandbox.containerId) },
);
