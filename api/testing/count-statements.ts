import Database from "libsql";
import { afterEach, beforeEach } from "vitest";

/** The statements that the running test has made on its database files, in order, with BEGIN and COMMIT. */
export const asked: string[] = [];

type Calls = Record<"run" | "get" | "all", (...values: unknown[]) => unknown>;
const driver = Database.prototype as unknown as { prepare: (sql: string) => Calls };

/** Call this before the store of a test is opened. */
export function countStatements(): void {
  const { prepare } = driver;
  beforeEach(() => {
    asked.length = 0;
    driver.prepare = function (sql) {
      const statement = prepare.call(this, sql);
      for (const name of ["run", "get", "all"] as const) {
        const call = statement[name].bind(statement);
        statement[name] = (...values) => {
          asked.push(sql);
          return call(...values);
        };
      }
      return statement;
    };
  });
  afterEach(() => void (driver.prepare = prepare));
}
