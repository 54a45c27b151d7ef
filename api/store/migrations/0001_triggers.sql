-- Rules that hold on every path, and counts that nobody has to take again: SQLite keeps them in the
-- statement that changes the rows. drizzle does not know triggers, so this file is written by hand.

-- A finished execution keeps its status.
CREATE TRIGGER `executions_final` BEFORE UPDATE OF `status` ON `executions`
WHEN OLD.`status` NOT IN ('queued', 'running') AND NEW.`status` <> OLD.`status`
BEGIN
  SELECT RAISE(ABORT, 'a finished execution cannot change its status');
END;
--> statement-breakpoint
-- Every asynchronous job that ends failed, timeout or oom gets one dead letter; calls of sessions get none. Its id is a time, as is
-- that of an event, so that the ids of one tenant do not count the failures of others.
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `status` ON `executions`
WHEN NEW.`mode` = 'async' AND NEW.`session_id` IS NULL
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`id`, `tenant`, `execution_id`, `error_type`, `created_at`)
  VALUES (max(NEW.`ended_at` * 100, 1 + coalesce((SELECT max(`id`) FROM `dead_letters`), 0)),
    NEW.`tenant`, NEW.`id`, json_extract(NEW.`error`, '$.type'), NEW.`ended_at`);
END;
--> statement-breakpoint
-- The length of the queue, and what each tenant uses. Calls wait for their session and use its room: they
-- count neither as waiting nor as running. A session has the number of its last call, and the time at which its
-- last call ended. A trigger of its own for calls would cost every job the look at its condition.
INSERT INTO `queue_length` (`id`, `queued`) VALUES (1, 0);
--> statement-breakpoint
CREATE TRIGGER `executions_queued` AFTER INSERT ON `executions`
WHEN NEW.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + 1 WHERE `id` = 1 AND NEW.`session_id` IS NULL;
  UPDATE `tenants` SET `queued` = `queued` + (NEW.`session_id` IS NULL),
    `stored_bytes` = `stored_bytes` + NEW.`submitted_bytes`
  WHERE `name` = NEW.`tenant`;
  UPDATE `tenants` SET `used_day` = NEW.`created_at` / 86400000
  WHERE `name` = NEW.`tenant` AND `used_day` < NEW.`created_at` / 86400000;
  UPDATE `sessions` SET `calls` = NEW.`call` WHERE `id` = NEW.`session_id`;
END;
--> statement-breakpoint
-- The result brings its bytes and its CPU time with the status. A day begins with the first job that ends on it.
CREATE TRIGGER `executions_moved` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` <> NEW.`status`
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + (NEW.`status` = 'queued') - (OLD.`status` = 'queued')
  WHERE `id` = 1 AND NEW.`session_id` IS NULL AND (NEW.`status` = 'queued') <> (OLD.`status` = 'queued');
  UPDATE `tenants` SET
    `queued` = `queued` + iif(NEW.`session_id` IS NULL, (NEW.`status` = 'queued') - (OLD.`status` = 'queued'), 0),
    `running` = `running` + iif(NEW.`session_id` IS NULL, (NEW.`status` = 'running') - (OLD.`status` = 'running'), 0),
    `stored_bytes` = `stored_bytes` + NEW.`output_bytes` - OLD.`output_bytes`,
    `cpu_ms` = iif(`cpu_day` < NEW.`ended_at` / 86400000, 0, `cpu_ms`)
      + iif(NEW.`ended_at` IS NULL, 0, coalesce(NEW.`cpu_time_ms`, 0)),
    `cpu_day` = max(`cpu_day`, coalesce(NEW.`ended_at` / 86400000, 0))
  WHERE `name` = NEW.`tenant`;
  UPDATE `sessions` SET `used_at` = NEW.`ended_at`
  WHERE NEW.`ended_at` IS NOT NULL AND `id` = NEW.`session_id`;
  UPDATE `payloads` SET `call` = json_remove(`call`, '$.env')
  WHERE NEW.`ended_at` IS NOT NULL AND NEW.`session_id` IS NOT NULL AND `execution_id` = NEW.`id`;
END;
--> statement-breakpoint
CREATE TRIGGER `executions_removed` AFTER DELETE ON `executions`
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` - 1 WHERE `id` = 1
    AND OLD.`session_id` IS NULL AND OLD.`status` = 'queued';
  UPDATE `tenants` SET `queued` = `queued` - (OLD.`session_id` IS NULL AND OLD.`status` = 'queued'),
    `running` = `running` - (OLD.`session_id` IS NULL AND OLD.`status` = 'running'),
    `stored_bytes` = `stored_bytes` - OLD.`submitted_bytes` - OLD.`output_bytes`
  WHERE `name` = OLD.`tenant`;
END;
--> statement-breakpoint
-- Artifacts, items, and output that no result has brought yet. Their rows go before their execution's.
CREATE TRIGGER `artifacts_stored` AFTER INSERT ON `artifacts`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + NEW.`size_bytes`
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = NEW.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `artifacts_removed` AFTER DELETE ON `artifacts`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - OLD.`size_bytes`
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = OLD.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `items_stored` AFTER INSERT ON `run_items`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + length(CAST(NEW.`data` AS BLOB))
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = NEW.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `items_removed` AFTER DELETE ON `run_items`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - length(CAST(OLD.`data` AS BLOB))
    - coalesce(length(CAST(OLD.`answer` AS BLOB)), 0)
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = OLD.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `items_answered` AFTER UPDATE OF `answer` ON `run_items`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + length(CAST(NEW.`answer` AS BLOB))
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = NEW.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `output_stored` AFTER INSERT ON `output_chunks`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + length(NEW.`data`)
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = NEW.`execution_id`);
END;
--> statement-breakpoint
CREATE TRIGGER `output_removed` AFTER DELETE ON `output_chunks`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - length(OLD.`data`)
  WHERE `name` = (SELECT `tenant` FROM `executions` WHERE `id` = OLD.`execution_id`);
END;
--> statement-breakpoint
-- A result has all output.
CREATE TRIGGER `output_ended` AFTER UPDATE OF `result_hash` ON `executions`
WHEN NEW.`result_hash` IS NOT NULL
BEGIN
  DELETE FROM `output_chunks` WHERE `execution_id` = NEW.`id`;
END;
--> statement-breakpoint
-- What a session keeps: its environment until it ends.
CREATE TRIGGER `sessions_stored` AFTER INSERT ON `sessions`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + length(CAST(NEW.`requirements` AS BLOB)) + coalesce(length(CAST(NEW.`metadata` AS BLOB)), 0)
      + coalesce(length(CAST(NEW.`env` AS BLOB)), 0)
  WHERE `name` = NEW.`tenant`;
  UPDATE `tenants` SET `used_day` = NEW.`created_at` / 86400000
  WHERE `name` = NEW.`tenant` AND `used_day` < NEW.`created_at` / 86400000;
END;
--> statement-breakpoint
CREATE TRIGGER `sessions_changed` AFTER UPDATE OF `metadata`, `env` ON `sessions`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + length(CAST(NEW.`requirements` AS BLOB)) + coalesce(length(CAST(NEW.`metadata` AS BLOB)), 0)
      + coalesce(length(CAST(NEW.`env` AS BLOB)), 0)
      - (length(CAST(OLD.`requirements` AS BLOB)) + coalesce(length(CAST(OLD.`metadata` AS BLOB)), 0)
      + coalesce(length(CAST(OLD.`env` AS BLOB)), 0))
  WHERE `name` = NEW.`tenant`;
END;
--> statement-breakpoint
CREATE TRIGGER `sessions_removed` AFTER DELETE ON `sessions`
BEGIN
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - (length(CAST(OLD.`requirements` AS BLOB)) + coalesce(length(CAST(OLD.`metadata` AS BLOB)), 0)
      + coalesce(length(CAST(OLD.`env` AS BLOB)), 0))
  WHERE `name` = OLD.`tenant`;
END;
--> statement-breakpoint
-- Ended executions by status, and how long each phase of jobs took. A job waits in the queue only from its run_at on.
CREATE TRIGGER `executions_counted` AFTER UPDATE OF `status` ON `executions`
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
CREATE TRIGGER `executions_lease_lost` AFTER UPDATE OF `status` ON `executions`
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
-- The number of dead letters.
INSERT INTO `counts` (`name`, `job_type`, `label`, `n`) VALUES ('dead_letters', '', '', 0);
--> statement-breakpoint
CREATE TRIGGER `dead_letters_counted` AFTER INSERT ON `dead_letters`
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`) VALUES ('dead_letters', '', '', 1)
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
END;
--> statement-breakpoint
CREATE TRIGGER `dead_letters_discounted` AFTER DELETE ON `dead_letters`
BEGIN
  UPDATE `counts` SET `n` = `n` - 1 WHERE `name` = 'dead_letters';
END;
--> statement-breakpoint
-- The metadata of executions, by key and value.
CREATE TRIGGER `executions_described` AFTER INSERT ON `executions`
WHEN NEW.`metadata` IS NOT NULL
BEGIN
  INSERT INTO `execution_metadata` (`tenant`, `key`, `value`, `seq`)
  SELECT NEW.`tenant`, `key`, `value`, NEW.`seq` FROM json_each(NEW.`metadata`);
END;
--> statement-breakpoint
CREATE TRIGGER `executions_undescribed` AFTER DELETE ON `executions`
WHEN OLD.`metadata` IS NOT NULL
BEGIN
  DELETE FROM `execution_metadata`
  WHERE (`tenant`, `key`, `value`, `seq`)
    IN (SELECT OLD.`tenant`, `key`, `value`, OLD.`seq` FROM json_each(OLD.`metadata`));
END;
--> statement-breakpoint
-- Every execution that ends, in whichever way, is one event if a receiver wants to hear of it, or while
-- somebody of its tenant listens (api/store/webhooks/listen.ts). The setting `webhook_types` has the types that
-- configured endpoints want (api/store/webhooks/events.ts).
-- An event for listeners alone is born fanned out, so that the sender never sees it.
CREATE TRIGGER `executions_webhook` AFTER UPDATE OF `status` ON `executions`
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
--> statement-breakpoint
-- The bytes of uploaded files, which max_files_bytes bounds, and those of each tenant.
INSERT INTO `file_bytes` (`id`, `total`) VALUES (1, 0);
--> statement-breakpoint
CREATE TRIGGER `files_stored` AFTER INSERT ON `files`
BEGIN
  UPDATE `file_bytes` SET `total` = `total` + NEW.`size_bytes` WHERE `id` = 1;
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + NEW.`size_bytes` WHERE `name` = NEW.`tenant`;
END;
--> statement-breakpoint
CREATE TRIGGER `files_removed` AFTER DELETE ON `files`
BEGIN
  UPDATE `file_bytes` SET `total` = `total` - OLD.`size_bytes` WHERE `id` = 1;
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - OLD.`size_bytes` WHERE `name` = OLD.`tenant`;
END;
--> statement-breakpoint
CREATE TRIGGER `removals_due` AFTER INSERT ON `removals`
WHEN NEW.`file_bytes` + NEW.`artifact_bytes` > 0
BEGIN
  UPDATE `file_bytes` SET `total` = `total` + NEW.`file_bytes` WHERE `id` = 1;
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + NEW.`file_bytes` + NEW.`artifact_bytes`
  WHERE `name` = NEW.`tenant`;
END;
--> statement-breakpoint
CREATE TRIGGER `removals_grown` AFTER UPDATE OF `file_bytes`, `artifact_bytes` ON `removals`
BEGIN
  UPDATE `file_bytes` SET `total` = `total` + NEW.`file_bytes` - OLD.`file_bytes` WHERE `id` = 1;
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` + NEW.`file_bytes` - OLD.`file_bytes`
    + NEW.`artifact_bytes` - OLD.`artifact_bytes`
  WHERE `name` = NEW.`tenant`;
END;
--> statement-breakpoint
CREATE TRIGGER `removals_done` AFTER DELETE ON `removals`
WHEN OLD.`file_bytes` + OLD.`artifact_bytes` > 0
BEGIN
  UPDATE `file_bytes` SET `total` = `total` - OLD.`file_bytes` WHERE `id` = 1;
  UPDATE `tenants` SET `stored_bytes` = `stored_bytes` - OLD.`file_bytes` - OLD.`artifact_bytes`
  WHERE `name` = OLD.`tenant`;
END;
--> statement-breakpoint
-- Keys of the configuration, and everybody without keys, are of this tenant.
INSERT INTO `tenants` (`name`, `created_at`)
VALUES ('default', CAST(strftime('%s', 'now') AS INTEGER) * 1000);
--> statement-breakpoint
-- The audit log only grows; upkeep removes what is old.
CREATE TRIGGER `audit_unchanged` BEFORE UPDATE ON `audit`
BEGIN
  SELECT RAISE(ABORT, 'an entry of the audit log cannot change');
END;
--> statement-breakpoint
CREATE TRIGGER `audit_kept` BEFORE DELETE ON `audit`
WHEN OLD.`at` > (CAST(strftime('%s', 'now') AS INTEGER) - 2592000) * 1000
BEGIN
  SELECT RAISE(ABORT, 'the audit log keeps its entries for 30 days');
END;
