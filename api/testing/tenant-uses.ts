/**
 * Finds tenants whose counts are not those of the rows, with both: the triggers keep none of them wrong. CPU time
 * outlives its records, so it is checked from below.
 */
export const miscounted = `
  WITH counted AS (
    SELECT t.name AS name, queued, running, stored_bytes AS bytes, (
        SELECT count(*) FROM executions e WHERE e.tenant = t.name AND status = 'queued' AND session_id IS NULL) AS waiting, (
        SELECT count(*) FROM executions e WHERE e.tenant = t.name AND status = 'running' AND session_id IS NULL) AS leased,
      coalesce((SELECT sum(submitted_bytes + output_bytes) FROM executions e WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(a.size_bytes) FROM artifacts a JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(data)) FROM output_chunks JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(CAST(data AS BLOB)) + coalesce(length(CAST(answer AS BLOB)), 0)) FROM run_items JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(CAST(requirements AS BLOB)) + coalesce(length(CAST(metadata AS BLOB)), 0)
          + coalesce(length(CAST(env AS BLOB)), 0)) FROM sessions s WHERE s.tenant = t.name), 0)
      + coalesce((SELECT sum(size_bytes) FROM files f WHERE f.tenant = t.name), 0)
      + coalesce((SELECT sum(file_bytes + artifact_bytes) FROM removals r WHERE r.tenant = t.name), 0) AS stored,
      cpu_ms, coalesce((SELECT sum(cpu_time_ms) FROM executions e
        WHERE e.tenant = t.name AND ended_at / 86400000 = cpu_day), 0) AS spent
    FROM tenants t)
  SELECT name AS id, json_array(queued, waiting, running, leased, bytes, stored, cpu_ms, spent) AS what
  FROM counted WHERE queued <> waiting OR running <> leased OR bytes <> stored OR cpu_ms < spent
  UNION ALL
  SELECT e.id, 'bytes' FROM executions e JOIN payloads p ON p.execution_id = e.id
  WHERE submitted_bytes <> length(code) + length(input) + coalesce(length(stdin), 0)
      + coalesce(length(CAST(args AS BLOB)), 0) + coalesce(length(CAST(metadata AS BLOB)), 0)
      + iif(requirements = '[]', 0, length(CAST(requirements AS BLOB)))
      + coalesce(length(CAST(tools AS BLOB)), 0)
      + coalesce(length(CAST(json_remove(p.call, '$.env') AS BLOB)), 0)
      + coalesce((SELECT sum(length(content)) FROM input_files f WHERE f.execution_id = e.id), 0)
    OR output_bytes <> coalesce(length(stdout), 0) + coalesce(length(stderr), 0) + coalesce(length(output), 0)`;
