import { writeFileSync } from "node:fs";
import Database from "libsql";

/** Loaded into the API by the bench: keeps the number of statements that it has run in the file that this names. */
const file = process.env["BENCH_STATEMENTS"];
if (file !== undefined && process.argv.some((word) => word.endsWith("api/node.ts"))) {
  type Statement = Record<"run" | "all", (...values: unknown[]) => unknown>;
  const driver = Database.prototype as unknown as { prepare: (sql: string) => Statement };
  const { prepare } = driver;
  let count = 0;
  let isTold = true;
  driver.prepare = function (sql) {
    const statement = prepare.call(this, sql);
    for (const name of ["run", "all"] as const) {
      const call = statement[name].bind(statement);
      statement[name] = (...values) => {
        count += 1;
        isTold = false;
        return call(...values);
      };
    }
    return statement;
  };
  setInterval(() => {
    if (!isTold) writeFileSync(file, String(count));
    isTold = true;
  }, 50).unref();
}
