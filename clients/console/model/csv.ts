/** The first rows of a CSV file (RFC 4180, also with ; or tab between fields). */
export function parseCsv(text: string, maxRows: number): string[][] {
  const separator = separatorOf(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let isQuoted = false;
  for (let i = 0; i <= text.length; i++) {
    const char = text[i] ?? "\n";
    if (isQuoted) {
      if (i === text.length) isQuoted = false;
      else if (char !== '"') field += char;
      else if (text[i + 1] === '"') field += text[++i];
      else isQuoted = false;
      if (i < text.length) continue;
    }
    if (char === '"' && field === "") isQuoted = true;
    else if (char === separator) {
      row.push(field);
      field = "";
    } else if (char === "\n") {
      row.push(field.endsWith("\r") ? field.slice(0, -1) : field);
      if (row.length > 1 || row[0] !== "") rows.push(row);
      if (rows.length >= maxRows) return rows;
      row = [];
      field = "";
    } else field += char;
  }
  return rows;
}

function separatorOf(text: string): string {
  const [head = ""] = text.split("\n", 1);
  const counted = [",", ";", "\t"].map((mark) => ({ mark, n: head.split(mark).length }));
  return counted.toSorted((a, b) => b.n - a.n)[0]!.mark;
}
