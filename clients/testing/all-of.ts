/** What `Array.fromAsync` does, which the types of es2023 lack. */
export async function allOf<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}
