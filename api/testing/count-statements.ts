import Database from "libsql";
import { afterEach, beforeEach } from "vitest";

/** What the database files of the test that runs have been asked, BEGIN and COMMIT too, in order. */
export const asked: string[] = [];

/** Call this before the store of a test is opened. */
export function countStatements(): void {
  const { prepare } = Database.prototype;
  beforeEach(() => {
    asked.length = 0;
    Database.prototype.prepare = function (this: Database.Database, sql: string) {
      const statement = prepare.call(this, sql);
      for (const name of ["run", "get", "all"] as const) {
        const call = statement[name].bind(statement);
        statement[name] = (...values: unknown[]) => {
          asked.push(sql);
          return call(...values);
        };
      }
      return statement;
    } as typeof prepare;
  });
  afterEach(() => void (Database.prototype.prepare = prepare));
}
