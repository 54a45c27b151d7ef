import type { Duplex } from "node:stream";
import { engineDemux } from "../sandbox/protocol/frames.ts";
import type { Link } from "../sandbox/protocol/link.ts";

/** The link to PID 1 of an attached container: its stdin and stdout, and the end of its stderr. */
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
