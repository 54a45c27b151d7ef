import { spawn } from "node:child_process";
import { once } from "node:events";
import type Docker from "dockerode";
import { readEngineStream } from "./engine-stream.ts";
import { withProgress } from "../run-step.ts";
import { say } from "../../command/say.ts";

export type ImportedImage = { repo: string; tag: string; changes: string[] };

/** Makes an image of one layer from the folder `root`, over the engine's API. */
export async function importImage(
  docker: Docker,
  root: string,
  image: ImportedImage,
): Promise<void> {
  const title = `importing ${image.repo}:${image.tag}`;
  const elapsed = withProgress(title);
  const tar = spawn("tar", ["-C", root, "--numeric-owner", "--one-file-system", "-c", "."], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const packed = once(tar, "exit") as Promise<[number | null]>;
    await readEngineStream(await docker.importImage(tar.stdout, image));
    const [code] = await packed;
    if (code !== 0) throw new Error(`tar ended with exit code ${code ?? "none"}`);
  } finally {
    tar.kill();
    elapsed.stop();
  }
  say(`${title}: done in ${elapsed.seconds()} s`);
}
