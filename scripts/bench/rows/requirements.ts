import { HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../services/service.ts";

const REQUEST = { requirements: ["numpy", "pandas"], startup_timeout: 600 };
const IMPORT = `import numpy, pandas\n${HELLO}`;
/** Both ways have the memory that copying the packages into it takes. */
const toml = `[job_types.default]\nmemory_limit = "1g"\n`;

/** From PyPI, also through a proxy of this machine's that has a private address and certificates of its own. */
const packages = {
  allow_runtime_requirements: true,
  enable_runtime_dependency_cache: true,
  pip_hosts: "pypi.org,files.pythonhosted.org",
  ...(process.env["SSL_CERT_FILE"] && { pip_ca_file: process.env["SSL_CERT_FILE"] }),
};

export const requirements: Row = {
  name: "requirements",
  what: "`import numpy, pandas` of a request that brings both, from the second time on",
  goal: "forked p50 ≤ 450 ms",
  measure: async (world) => {
    await using forked = await world.startService({
      config: { ...packages, container_backend: "zygote" },
      toml,
    });
    await using plain = await world.startService({
      config: { ...packages, container_backend: "engine" },
      toml,
    });
    const side = (name: string, service: Service, more: object): Side => ({
      name,
      once: async () => {
        await service.settled();
        return timed(() => service.execute(more === REQUEST ? IMPORT : HELLO, more));
      },
    });
    const sides = [
      side("forked", forked, REQUEST),
      side("in a container", plain, REQUEST),
      side("hello, forked", forked, {}),
    ];
    return await interleave("ms", sides, { warmUp: 2, rounds: world.samples(20) });
  },
  reaches: (of) => of("forked").p50 <= 450,
};
