import { readFileSync } from "node:fs";
import { join } from "node:path";
import Docker from "dockerode";

/**
 * A client for the engine at `unix://path` or `tcp://host:port`; DOCKER_TLS_VERIFY and
 * DOCKER_CERT_PATH set TLS.
 */
export function connect(host: string, timeoutMs?: number): Docker {
  const timeout = timeoutMs === undefined ? {} : { timeout: timeoutMs };
  if (host.startsWith("unix://")) {
    // The empty host matters: dockerode would otherwise prefer the one in DOCKER_HOST.
    return new Docker({ socketPath: host.slice("unix://".length), host: "", ...timeout });
  }
  const url = new URL(host.includes("://") ? host : `tcp://${host}`);
  if (url.protocol === "ssh:") {
    const username = url.username || "root";
    return new Docker({ protocol: "ssh", host: url.hostname, port: url.port || 22, username });
  }
  return new Docker({ host: url.hostname, port: url.port, ...tls(process.env), ...timeout });
}

function tls(env: NodeJS.ProcessEnv): Docker.DockerOptions {
  const certificates = env["DOCKER_CERT_PATH"];
  if (!env["DOCKER_TLS_VERIFY"] || !certificates) return { protocol: "http" };
  const read = (name: string): Buffer => readFileSync(join(certificates, name));
  return { protocol: "https", ca: read("ca.pem"), cert: read("cert.pem"), key: read("key.pem") };
}
