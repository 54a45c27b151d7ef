import Libsql from "libsql";

type Calls = Record<"run" | "get" | "all", (...values: unknown[]) => unknown>;
const driver = Libsql.prototype as unknown as { prepare: (sql: string) => Calls };

/** Tells the text of each statement that this process runs on database files from now on. Returns what ends that. */
export function tellStatements(tell: (sql: string) => void): () => void {
  const { prepare } = driver;
  driver.prepare = function (sql) {
    const statement = prepare.call(this, sql);
    for (const name of ["run", "get", "all"] as const) {
      const call = statement[name].bind(statement);
      statement[name] = (...values) => {
        tell(sql);
        return call(...values);
      };
    }
    return statement;
  };
  return () => void (driver.prepare = prepare);
}
