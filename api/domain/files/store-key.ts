/**
 * Keys of bytes in the artifact store: ids and hashes, never a client's name. Bytes are removed by the first
 * part of their key, the id of their owner, or by the first two.
 */

export function artifactKey(row: { executionId: string; leaseId: string; sha256: string }): string {
  return `${row.executionId}/${row.leaseId}/${row.sha256}`;
}

export function fileKey({ id }: { id: string }): string {
  return `${id}/file`;
}
