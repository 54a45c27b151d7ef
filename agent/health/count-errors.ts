import type { EngineHealth } from "../../shared/wire/health.ts";
import type { Engine } from "../engine/engine.ts";
import { EngineError } from "../sandbox/errors.ts";

/** The calls that check the engine. */
const probes: readonly string[] = ["ping", "describe"] satisfies (keyof Engine)[];

export type EngineErrors = NonNullable<EngineHealth["errors"]>;

/**
 * Wraps the engine and counts its failed calls by call and kind. A call that the agent aborted is
 * not counted, except a check of the engine that timed out.
 */
export function countErrors(engine: Engine): { engine: Engine; errors: () => EngineErrors } {
  const counts = new Map<string, EngineErrors[number]>();

  function note(operation: string, kind: string): void {
    const key = `${operation} ${kind}`;
    counts.set(key, { operation, kind, count: (counts.get(key)?.count ?? 0) + 1 });
  }

  function failed(operation: string, error: unknown): void {
    if (error instanceof EngineError) note(operation, error.code);
    else if (probes.includes(operation) && isTimeout(error)) note(operation, "timeout");
  }

  type AnyCall = (...args: unknown[]) => Promise<unknown>;
  const counted = Object.entries(engine as unknown as Record<string, AnyCall>).map(
    ([operation, call]): [string, AnyCall] => [
      operation,
      async (...args) => {
        try {
          return await call(...args);
        } catch (error) {
          failed(operation, error);
          throw error;
        }
      },
    ],
  );
  return {
    engine: Object.fromEntries(counted) as unknown as Engine,
    errors: () => [...counts.values()],
  };
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}
