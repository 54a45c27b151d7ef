import { expect, test } from "vitest";
import { connect, type OwnTool } from "../../clients/typescript/src/index.ts";
import { places, placesOfTier } from "../testing/places.ts";
import { startTestService } from "../testing/test-service.ts";

test.each(placesOfTier)(
  "in %s, a call calls a tool three times, is interrupted while one waits, and its threads call none later",
  async (place) => {
    await using service = await startTestService();
    await service.startAgent("session-tools", places[place]);
    await using session = await connect({ url: service.url }).sessions.create();
    const shown = async (code: string, tools?: OwnTool[]): Promise<string | undefined> => {
      const { results, error } = await session.run(code, { tools });
      expect(error).toBeNull();
      return results?.[0]?.data["text/plain"];
    };
    const parameters = { properties: { n: {} } };
    const double: OwnTool = { name: "double", parameters, run: ({ n }: { n: number }) => 2 * n };
    const stuck: OwnTool = {
      name: "stuck",
      run: async () => {
        await session.interrupt();
        return new Promise(() => {});
      },
    };
    expect(await shown("x = double(double(double(1)))\nx", [double])).toBe("8");
    const begun = await shown(
      `
import threading
go, said = threading.Event(), []
def call(tool=double):
    go.wait()
    try: tool(1)
    except ToolError as error: said.append(str(error))
thread = threading.Thread(target=call)
thread.start()
double(x)`,
      [double],
    );
    expect(begun).toBe("16");
    const cut = await session.run("y = 1\nstuck()", { tools: [stuck] });
    expect(cut).toMatchObject({ status: "cancelled" });
    expect(await shown("go.set()\nthread.join()\nsaid, double(y)", [double])).toBe(
      "(['The call of the session that brought this tool has ended.'], 2)",
    );
    expect(await shown("'double' in globals()")).toBe("False");
  },
);
