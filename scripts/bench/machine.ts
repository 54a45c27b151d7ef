import { execFileSync } from "node:child_process";
import { arch, cpus, loadavg, release, totalmem } from "node:os";
import type Docker from "dockerode";
import manifest from "../../package.json" with { type: "json" };

/** Where and on what was measured. */
export type Machine = {
  readonly cpu: string;
  readonly cores: string;
  readonly memory: string;
  readonly kernel: string;
  readonly node: string;
  readonly engine: string;
  readonly airlock: string;
};

export async function describeMachine(docker: Docker): Promise<Machine> {
  const { Version, Components = [] } = (await docker.version()) as EngineVersion;
  const parts = Components.filter(({ Name }) => Name !== "Engine" && Name !== "docker-init");
  return {
    cpu: cpus()[0]?.model.trim() ?? arch(),
    cores: `${cpus().length} cores`,
    memory: `${Math.round(totalmem() / 1024 ** 3)} GiB`,
    kernel: `Linux ${release()}`,
    node: `Node ${process.version}`,
    engine: [`docker ${Version}`, ...parts.map((part) => `${part.Name} ${part.Version}`)].join(
      ", ",
    ),
    airlock: `Airlock ${manifest.version} (${commit()})`,
  };
}

type EngineVersion = { Version: string; Components?: { Name: string; Version: string }[] };

function commit(): string {
  try {
    const args = ["describe", "--always", "--dirty"];
    return execFileSync("git", args, {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return "no commit";
  }
}

/** Above this share of the cores, what else runs distorts what is measured. */
const BUSY_SHARE = 0.35;

export type Load = { readonly perMinute: number; readonly isHigh: boolean };

/** How busy the machine is before anything of the bench runs. */
export function loadNow(): Load {
  const [perMinute = 0] = loadavg();
  return { perMinute, isHigh: perMinute > BUSY_SHARE * cpus().length };
}
