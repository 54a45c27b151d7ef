import { execFile, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { basename, dirname } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import Docker from "dockerode";
import { furnishedName } from "../images/furnish.ts";
import { defaultEngine, engineConnection } from "../../shared/process/engine.node.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";

const host = process.env["AIRLOCK_DOCKER_HOST"] ?? defaultEngine;

/** The tests' engine without Airlock's client, to check what that client did. */
export const rawEngine = new Docker(engineConnection(host));

/** Runs a shell script as root in a container of an image, with these volumes, and returns what it printed. */
export async function shell(image: string, script: string, ...Binds: string[]): Promise<string> {
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sh", "-c"],
    Cmd: [script],
    User: "0:0",
    Tty: true,
    HostConfig: { Binds },
  });
  try {
    const output = await container.attach({ stream: true, stdout: true, stderr: true });
    const printed = text(output);
    await container.start();
    const { StatusCode } = (await container.wait()) as { StatusCode: number };
    const said = (await printed).replaceAll("\r\n", "\n");
    if (StatusCode !== 0) throw new Error(`exit code ${StatusCode}: ${said}`);
    return said;
  } finally {
    await container.remove({ force: true, v: true });
  }
}

/** Makes an image by running a shell script in another one, after `prepare`; returns its id. */
export async function deriveImage(
  image: string,
  script: string,
  changes: string[] = [],
  prepare: (container: Docker.Container) => Promise<void> = () => Promise.resolve(),
): Promise<string> {
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sh", "-c"],
    Cmd: [script],
    User: "0:0",
  });
  try {
    await prepare(container);
    await container.start();
    await container.wait();
    // Else other tests would use it instead of its base.
    const standsForNothing = 'LABEL io.airlock.stands-in-for=""';
    const { Id } = (await container.commit({ changes: [standsForNothing, ...changes] })) as {
      Id: string;
    };
    return Id;
  } finally {
    await container.remove({ force: true, v: true });
  }
}

/** Makes an image with this machine's Node and npm by running a shell script in another one; returns its id. */
export function imageWithNpm(image: string, script: string): Promise<string> {
  const find = ["-c", 'readlink -f "$(command -v npm)"'];
  const npm = dirname(dirname(execFileSync("sh", find, { encoding: "utf8" }).trim()));
  const link = "ln -s /usr/local/lib/npm/bin/npm-cli.js /usr/local/bin/npm";
  return deriveImage(image, `${link}; ${script}`, [], async (container) => {
    const put = async (folder: string, name: string, path: string): Promise<void> => {
      const tar = spawn("tar", ["-C", folder, "-ch", name], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await container.putArchive(tar.stdout, { path });
    };
    await put(dirname(process.execPath), basename(process.execPath), "/usr/local/bin");
    await put(dirname(npm), "npm", "/usr/local/lib");
  });
}

/** Makes an image whose Python can import these modules, given by name; returns its id. */
export function imageWithModules(
  image: string,
  modules: Readonly<Record<string, string>>,
): Promise<string> {
  const files = Object.entries(modules).map(([name, text]) => {
    const encoded = Buffer.from(text).toString("base64");
    return `echo ${encoded} | base64 -d > $folder/${name}.py`;
  });
  const folder = "folder=$(python3 -c 'import site; print(site.getsitepackages()[0])')";
  return deriveImage(image, `${folder}; mkdir -p $folder; ${files.join("; ")}`);
}

/** Ids of the containers that agents of this name have started, in any state. */
export async function containersOf(agentName: string): Promise<string[]> {
  return (await listOf(agentName)).map(({ Id }) => Id);
}

/** Only the containers that serve one job or wait for one. */
export async function jobContainersOf(agentName: string): Promise<string[]> {
  const found = await listOf(agentName);
  return found
    .filter(({ Labels }) => !Labels["io.airlock.lease"]?.startsWith("mother-"))
    .map(({ Id }) => Id);
}

function listOf(agentName: string) {
  const filters = { label: [`io.airlock.owner=${agentName}`] };
  return rawEngine.listContainers({ all: true, filters });
}

/** Removes them, and the volumes of these agents. The engine refuses one whose removal has started. */
export async function removeContainersOf(agentName: string): Promise<void> {
  for (const id of await containersOf(agentName)) {
    await rawEngine
      .getContainer(id)
      .remove({ force: true, v: true })
      .catch(() => {});
  }
  const filters = { label: [`io.airlock.owner=${agentName}`] };
  const { Volumes } = await rawEngine.listVolumes({ filters });
  for (const { Name } of Volumes ?? []) await removeVolume(Name);
}

/** Waits until no container uses the volume: the engine may still be removing some. */
export async function removeVolume(name: string): Promise<void> {
  await waitUntil(`the volume ${name} is in use by nothing`, () =>
    rawEngine
      .getVolume(name)
      .remove()
      .then(
        () => true,
        ({ statusCode }: { statusCode?: number }) => statusCode === 404,
      ),
  );
}

/** Ids of the images that agents have built under names that contain this one: a registry comes first. */
export async function imagesOf(name: string): Promise<string[]> {
  const label = "io.airlock.repository";
  const built = await rawEngine.listImages({ filters: { label: [label] } });
  return built.filter(({ Labels }) => Labels[label]?.includes(name)).map(({ Id }) => Id);
}

/** Removes images with all their tags, the last first; some may be gone already. */
export async function removeImages(...ids: string[]): Promise<void> {
  for (const id of ids.toReversed()) {
    const image = rawEngine.getImage(id);
    const found = await image.inspect().catch(unlessGone);
    // With its last name goes what was made of it.
    if (found && found.RepoTags.length < 2)
      await rawEngine.getImage(furnishedName(found.Id)).remove({ force: true }).catch(unlessGone);
    await image.remove({ force: true }).catch(unlessGone);
  }
}

function unlessGone(error: { statusCode?: number }): undefined {
  if (error.statusCode !== 404) throw error;
}

/** The host's address on the network of containers that have one. */
export async function bridgeAddress(): Promise<string> {
  const { IPAM } = (await rawEngine.getNetwork("bridge").inspect()) as {
    IPAM: { Config: { Gateway?: string; Subnet: string }[] };
  };
  const [config] = IPAM.Config;
  return config?.Gateway ?? config!.Subnet.replace(/\.0\/\d+$/, ".1");
}

export type CodeSignal = ReturnType<typeof makeCodeSignal>;

/** A signal that code in containers waits for; the test sends it once everything else is in place. */
export function makeCodeSignal() {
  // A container that got another signal must still get this one.
  const file = `/tmp/signal-${randomUUID()}`;
  return {
    /** Python that waits for it. */
    wait: `
import os, time
while not os.path.exists("${file}"):
    time.sleep(0.05)
`,
    /**
     * Sends it to all containers that agents of this name run now, and to the jobs that are forked in
     * them; some may end meanwhile.
     */
    sendTo: async (agentName: string, docker = rawEngine): Promise<void> => {
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
