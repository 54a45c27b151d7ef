import { connect } from "../../../clients/typescript/src/index.ts";
import { HELLO } from "../bare.ts";
import { timed } from "../interleave.ts";
import type { Row } from "../row.ts";

/** Prints how long each call of the tool takes, in ms. */
const program = (calls: number): string => `
import time
for _ in range(${calls}):
    began = time.perf_counter()
    answer()
    print((time.perf_counter() - began) * 1000)
`;
const answer = { name: "answer", run: () => null };

export const tools: Row = {
  name: "tools",
  what: "a call of the caller's tool, from the code to the client that answers at once and back, beside a hello",
  goal: "p50 ≤ 40 ms",
  measure: async (world) => {
    await using service = await world.startService({ config: { container_backend: "zygote" } });
    const client = connect({ url: service.url });
    const round = async (calls: number): Promise<number[]> => {
      const record = await client.run(program(calls), { tools: [answer] });
      const times = record.stdout.trim().split("\n").map(Number);
      if (times.length !== calls) throw new Error(`the job ended as ${JSON.stringify(record)}`);
      return times;
    };
    await service.warmUp(world.samples(100));
    await round(world.samples(20));
    const [hello, trips]: [number[], number[]] = [[], []];
    for (let n = 0; n < world.samples(10); n++) {
      await service.settled();
      hello.push(await timed(() => service.execute(HELLO)));
      trips.push(...(await round(world.samples(15))));
    }
    return [
      { name: "hello", unit: "ms", samples: hello },
      { name: "call of a tool", unit: "ms", samples: trips },
    ];
  },
  reaches: (of) => of("call of a tool").p50 <= 40,
};
