/**
 * Puts an entry at the end of a map, and takes out the first ones where there are more than `most`. A map whose
 * entries are put again whenever they are used holds those that were used last.
 *
 * @returns what was taken out.
 */
export function putLast<K, V>(map: Map<K, V>, key: K, value: V, most: number): V[] {
  map.delete(key);
  map.set(key, value);
  const taken: V[] = [];
  for (const [oldest, old] of map) {
    if (map.size <= most) break;
    map.delete(oldest);
    taken.push(old);
  }
  return taken;
}
