import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import { engineDemux } from "../sandbox/protocol/frames.ts";
import type { Link } from "../sandbox/protocol/link.ts";

/** A request on dockerode's connection, with the options used here. */
type Dial = (
  request: {
    path: string;
    method: "POST";
    options: { _query: Record<string, boolean> };
    file: Buffer;
    headers: Record<string, string>;
    hijack: true;
    isStream: true;
    openStdin: false;
    statusCodes: Record<number, true | string>;
    abortSignal: AbortSignal;
  },
  callback: (error: Error | null, stream: Duplex) => void,
) => void;

/**
 * Opens a container's stdin, and its stdout and stderr multiplexed. dockerode's own call is not
 * used: it sends a body, which Podman passes to the container as input. Source: Docker Engine API
 * 1.41, ContainerAttach.
 */
export async function attachStreams(
  docker: Docker,
  id: string,
  abortSignal: AbortSignal,
): Promise<Duplex> {
  const modem = docker.modem as { dial: Dial };
  return new Promise((resolve, reject) => {
    const request = {
      path: `/containers/${id}/attach?`,
      method: "POST",
      options: { _query: { stream: true, stdin: true, stdout: true, stderr: true } },
      // Sends Content-Length: 0. Without it the body would be an empty chunked one, which is five
      // bytes long.
      file: Buffer.alloc(0),
      headers: {},
      hijack: true,
      isStream: true,
      openStdin: false,
      statusCodes: { 200: true, 404: "no such container", 500: "server error" },
      abortSignal,
    } as const;
    modem.dial(request, (error, stream) => (error ? reject(error) : resolve(stream)));
  });
}

/** The link to PID 1 of an attached container: its stdin, its stdout, and the last bytes of its stderr. */
export function linkOf(stream: Duplex): Link {
  let diagnostics = "";
  stream.on("error", () => {});

  async function* output(): AsyncGenerator<Uint8Array> {
    const demux = engineDemux();
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const { stream: name, bytes } of demux(chunk)) {
        if (name === "stdout") yield bytes;
        else diagnostics = (diagnostics + bytes.toString("utf8")).slice(-4096);
      }
    }
  }
  return {
    input: stream,
    output: output(),
    diagnostics: () => diagnostics,
    destroy: () => stream.destroy(),
  };
}
