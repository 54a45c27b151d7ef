import { expect, test } from "vitest";
import { counted } from "./metered-sqld.ts";

test("a call counts as a write if one of its statements wrote, and the rows of all are added up", () => {
  const none = { calls: 0, writes: 0, rowsRead: 0, rowsWritten: 0 };
  const read = counted(none, '{"rows_read":3,"rows_written":0}');
  expect(read).toEqual({ calls: 1, writes: 0, rowsRead: 3, rowsWritten: 0 });
  const answer = '[{"rows_read":1,"rows_written":2},{"rows_read":4,"rows_written":5}]';
  expect(counted(read, answer)).toEqual({ calls: 2, writes: 1, rowsRead: 8, rowsWritten: 7 });
});
