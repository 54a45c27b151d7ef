import type Docker from "dockerode";
import { labels } from "../sandbox/labels.ts";

/** A volume of one agent. If agents share it, `agentName` is empty. */
export interface VolumeEntry {
  readonly name: string;
  readonly agentName: string;
}

/** What an engine does with volumes. Every method throws EngineError, or its signal's reason on abort. */
export interface VolumeCalls {
  /** Makes a volume for an agent, unless it exists. With an empty `agentName`, all agents share it. */
  createVolume(name: string, agentName: string, signal: AbortSignal): Promise<void>;
  /** Volumes of agents that no container uses, whether it runs or not. */
  unusedVolumes(signal: AbortSignal): Promise<VolumeEntry[]>;
  /** Removes a volume, unless a container uses it. A missing volume is no error. */
  removeVolume(name: string, signal: AbortSignal): Promise<void>;
}

type Call = <T>(
  signal: AbortSignal,
  request: (abortSignal: AbortSignal) => Promise<T>,
) => Promise<T>;

export function volumeCalls(docker: Docker, call: Call): VolumeCalls {
  return {
    createVolume: (name, agentName, signal) =>
      call(signal, async (abortSignal) => {
        await docker.createVolume({
          Name: name,
          Labels: { [labels.agentName]: agentName },
          abortSignal,
        });
      }),
    unusedVolumes: (signal) =>
      call(signal, async (abortSignal) => {
        const filters = { label: [labels.agentName], dangling: ["true"] };
        const { Volumes } = await docker.listVolumes({ filters, abortSignal });
        return (Volumes ?? []).map(({ Name, Labels }) => ({
          name: Name,
          agentName: Labels[labels.agentName] ?? "",
        }));
      }),
    removeVolume: (name, signal) =>
      call(signal, async (abortSignal) => {
        await docker
          .getVolume(name)
          .remove({ abortSignal })
          .catch((error: unknown) => {
            const { statusCode } = error as { statusCode?: number };
            if (statusCode !== 404 && statusCode !== 409) throw error;
          });
      }),
  };
}
