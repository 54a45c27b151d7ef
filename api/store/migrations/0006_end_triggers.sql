-- Triggers on the status alone are part of each claim, whose statement a libSQL server compiles anew each time. What ends an
-- execution sets `ended_at`, and what gives it back sets `available_at`: so these fire where they did, and no claim has them.
DROP TRIGGER `executions_dead_letter`;
--> statement-breakpoint
DROP TRIGGER `executions_counted`;
--> statement-breakpoint
DROP TRIGGER `executions_webhook`;
--> statement-breakpoint
DROP TRIGGER `executions_lease_lost`;
--> statement-breakpoint
-- Every asynchronous job that ends failed, timeout or oom gets one dead letter; calls of sessions get none. Its id is a time, as is
-- that of an event, so that the ids of one tenant do not count the failures of others.
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `ended_at` ON `executions`
WHEN NEW.`mode` = 'async' AND NEW.`session_id` IS NULL
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`id`, `tenant`, `execution_id`, `error_type`, `created_at`)
  VALUES (max(NEW.`ended_at` * 100, 1 + coalesce((SELECT max(`id`) FROM `dead_letters`), 0)),
    NEW.`tenant`, NEW.`id`, json_extract(NEW.`error`, '$.type'), NEW.`ended_at`);
END;
--> statement-breakpoint
-- Ended executions by status, and how long each phase of jobs took. A job waits in the queue only from its run_at on.
CREATE TRIGGER `executions_counted` AFTER UPDATE OF `ended_at` ON `executions`
WHEN OLD.`status` IN ('queued', 'running') AND NEW.`status` NOT IN ('queued', 'running')
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`)
  VALUES ('executions', NEW.`job_type`, NEW.`status`, 1)
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
  INSERT INTO `durations` (`job_type`, `phase`, `le_ms`, `n`, `sum_ms`)
  SELECT NEW.`job_type`, `column1`,
    CASE
      WHEN `column2` <= 5 THEN 5
      WHEN `column2` <= 10 THEN 10
      WHEN `column2` <= 25 THEN 25
      WHEN `column2` <= 50 THEN 50
      WHEN `column2` <= 100 THEN 100
      WHEN `column2` <= 250 THEN 250
      WHEN `column2` <= 500 THEN 500
      WHEN `column2` <= 1000 THEN 1000
      WHEN `column2` <= 2500 THEN 2500
      WHEN `column2` <= 5000 THEN 5000
      WHEN `column2` <= 10000 THEN 10000
      WHEN `column2` <= 30000 THEN 30000
      WHEN `column2` <= 60000 THEN 60000
      WHEN `column2` <= 300000 THEN 300000
      WHEN `column2` <= 1800000 THEN 1800000
      WHEN `column2` <= 3600000 THEN 3600000
      ELSE 9007199254740991
    END,
    1, `column2`
  FROM (VALUES
    ('queue', max(0, NEW.`started_at` - max(NEW.`created_at`, coalesce(NEW.`run_at`, 0)))),
    ('startup', json_extract(NEW.`timing`, '$.startup_ms')),
    ('dep_install', nullif(json_extract(NEW.`timing`, '$.dep_install_ms'), 0)),
    ('execution', json_extract(NEW.`timing`, '$.execution_ms')),
    ('total', json_extract(NEW.`timing`, '$.total_ms')))
  WHERE `column2` IS NOT NULL AND NEW.`session_id` IS NULL
  ON CONFLICT DO UPDATE SET `n` = `n` + 1, `sum_ms` = `sum_ms` + excluded.`sum_ms`;
END;
--> statement-breakpoint
-- A lease that ends without a result is lost: it expired, or its agent released it. Its uploads are
-- removed an hour later, as one of them may still be under way.
CREATE TRIGGER `executions_lease_lost` AFTER UPDATE OF `ended_at`, `available_at` ON `executions`
WHEN OLD.`status` = 'running' AND NEW.`status` <> 'running' AND NEW.`result_hash` IS NULL
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`)
  SELECT 'leases', NEW.`job_type`,
    iif(coalesce(NEW.`ended_at`, NEW.`available_at`) >= OLD.`lease_expires_at`, 'expired', 'released'), 1
  UNION ALL
  SELECT 'retries', NEW.`job_type`, '', 1 WHERE NEW.`status` = 'queued'
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
  INSERT INTO `removals` (`prefix`, `tenant`, `due_at`)
  VALUES (NEW.`id` || '/' || OLD.`lease_id`, NEW.`tenant`, coalesce(NEW.`ended_at`, NEW.`available_at`) + 3600000)
  ON CONFLICT DO NOTHING;
END;
--> statement-breakpoint
-- Every execution that ends, in whichever way, is one event if a receiver wants to hear of it, or while
-- somebody of its tenant listens (api/webhooks/sql.ts). The setting `webhook_types` has the types that
-- configured endpoints want. An event for listeners alone is born fanned out, so that the sender never sees it.
CREATE TRIGGER `executions_webhook` AFTER UPDATE OF `ended_at` ON `executions`
WHEN OLD.`status` IN ('queued', 'running') AND NEW.`status` NOT IN ('queued', 'running')
  AND (NEW.`callback_url` IS NOT NULL OR EXISTS (
    SELECT 1 FROM `settings`, json_each(`settings`.`value`) AS `type`
    WHERE `settings`.`name` = 'webhook_types' AND `type`.`value` = 'execution.' || NEW.`status`)
  OR EXISTS (
    SELECT 1 FROM `tenants` WHERE `name` = NEW.`tenant` AND `listening_until` > NEW.`ended_at`))
BEGIN
  INSERT INTO `webhook_events`
    (`seq`, `tenant`, `execution_id`, `type`, `data`, `callback_url`, `created_at`, `is_fanned_out`)
  -- The last number so far: SQLite's own table has it at the end of a statement, also if the row is gone.
  VALUES (max(NEW.`ended_at` * 100, 1 + coalesce((SELECT max(`seq`) FROM `webhook_events`), 0),
      1 + coalesce((SELECT `seq` FROM `sqlite_sequence` WHERE `name` = 'webhook_events'), 0)),
    NEW.`tenant`, NEW.`id`, 'execution.' || NEW.`status`,
    json_object(
      'job_type', NEW.`job_type`,
      'attempt', NEW.`attempt`,
      'created_at', NEW.`created_at`,
      'started_at', NEW.`started_at`,
      'exit_code', NEW.`exit_code`,
      'error_type', json_extract(NEW.`error`, '$.type'),
      'phase', json_extract(NEW.`error`, '$.phase'),
      'correlation_id', NEW.`correlation_id`,
      'metadata', json(NEW.`metadata`),
      'batch_id', NEW.`batch_id`,
      'session_id', NEW.`session_id`,
      'parent_execution_id', NEW.`parent_execution_id`,
      'relationship', NEW.`relationship`,
      'traceparent', NEW.`traceparent`),
    NEW.`callback_url`, NEW.`ended_at`,
    NEW.`callback_url` IS NULL AND NOT EXISTS (
      SELECT 1 FROM `settings`, json_each(`settings`.`value`) AS `type`
      WHERE `settings`.`name` = 'webhook_types' AND `type`.`value` = 'execution.' || NEW.`status`));
END;