import type { Duplex } from "node:stream";
import type Docker from "dockerode";

/** One request of dockerode's connection; the part of its options that is used here. */
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
 * Opens a container's stdin, and its stdout and stderr multiplexed. Not by dockerode's own call, which
 * sends a body along: Podman hands that to the container as the first of its input.
 * Source: Docker Engine API 1.41, ContainerAttach.
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
      // For a length of 0: without it the body would be an empty one in chunks, five bytes long.
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
