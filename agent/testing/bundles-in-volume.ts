import { motherSpec } from "../fork/keep-mother.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { rawEngine } from "../sandbox/testing/raw-engine.ts";

/** What the volume of an agent's packages holds: the names of bundles, and half-written ones. */
export async function bundlesInVolume(agentName: string): Promise<string[]> {
  const { image } = await testEngine();
  const { bundles } = motherSpec({ id: "", name: agentName } as never, 1, null, 0);
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sh", "-c"],
    Cmd: ["ls /bundles"],
    Tty: true,
    HostConfig: { Binds: [`${bundles}:/bundles:ro`] },
  });
  try {
    const stream = await container.attach({ stream: true, stdout: true });
    const said = new Promise<string>((resolve) => {
      let text = "";
      stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
      stream.on("end", () => resolve(text));
    });
    await container.start();
    await container.wait();
    return (await said).split(/\s+/).filter(Boolean);
  } finally {
    await container.remove({ force: true });
  }
}
