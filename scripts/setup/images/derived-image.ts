import { text } from "node:stream/consumers";
import type Docker from "dockerode";
import { OperatorError } from "../../command/operator-error.ts";
import { say } from "../../command/say.ts";
import { withProgress } from "../run-step.ts";

export type DerivedImage = { repo: string; tag: string };

export const nameOf = ({ repo, tag }: DerivedImage): string => `${repo}:${tag}`;

export async function isThere(docker: Docker, image: DerivedImage): Promise<boolean> {
  try {
    await docker.getImage(nameOf(image)).inspect();
    return true;
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode !== 404) throw error;
    return false;
  }
}

/**
 * Makes an image of `base` and of what a command does in it, for tests and benchmarks; `prepare` may put files into the
 * container first. The command has the host's network.
 */
export async function makeDerivedImage(
  docker: Docker,
  image: DerivedImage,
  base: string,
  command: string[],
  env: Readonly<Record<string, string>> = {},
  prepare: (container: Docker.Container) => Promise<unknown> = () => Promise.resolve(),
): Promise<void> {
  const title = `making ${nameOf(image)} from ${base}`;
  const elapsed = withProgress(title);
  const container = await docker.createContainer({
    Image: base,
    Cmd: command,
    Tty: true,
    HostConfig: { NetworkMode: "host" },
  });
  try {
    await prepare(container);
    const output = text(await container.attach({ stream: true, stdout: true, stderr: true }));
    await container.start();
    const { StatusCode } = (await container.wait()) as { StatusCode: number };
    if (StatusCode !== 0) throw new OperatorError(`${title} failed:\n${await output}`);
    const variables = Object.entries(env).map(([name, value]) => `ENV ${name}=${value}`);
    const changes = ['CMD ["python3"]', 'LABEL io.airlock.stands-in-for=""', ...variables];
    await container.commit({ ...image, changes });
  } finally {
    elapsed.stop();
    await container.remove({ force: true, v: true });
  }
  say(`${title}: done in ${elapsed.seconds()} s`);
}
