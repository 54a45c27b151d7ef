/** Rows of cells in columns, the first row as titles. */
export function table(rows: string[][]): string {
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => row[at]!.length)));
  const lines = rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at]!)).join("  "));
  return `${lines.map((line) => line.trimEnd()).join("\n")}\n`;
}
