-- Rules that hold on every path, and counts that nobody has to take again: SQLite keeps them in the
-- statement that changes the rows. drizzle does not know triggers, so this file is written by hand.

-- A finished execution keeps its status.
CREATE TRIGGER `executions_final` BEFORE UPDATE OF `status` ON `executions`
WHEN OLD.`status` NOT IN ('queued', 'running') AND NEW.`status` <> OLD.`status`
BEGIN
  SELECT RAISE(ABORT, 'a finished execution cannot change its status');
END;
--> statement-breakpoint
-- Every asynchronous execution that ends failed, timeout or oom gets one dead letter.
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `status` ON `executions`
WHEN NEW.`mode` = 'async'
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`execution_id`, `error_type`, `created_at`)
  VALUES (NEW.`id`, json_extract(NEW.`error`, '$.type'), NEW.`ended_at`);
END;
--> statement-breakpoint
-- The length of the queue.
INSERT INTO `queue_length` (`id`, `queued`) VALUES (1, 0);
--> statement-breakpoint
CREATE TRIGGER `executions_queued` AFTER INSERT ON `executions`
WHEN NEW.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + 1 WHERE `id` = 1;
END;
--> statement-breakpoint
CREATE TRIGGER `executions_queue_moved` AFTER UPDATE OF `status` ON `executions`
WHEN (OLD.`status` = 'queued') <> (NEW.`status` = 'queued')
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + iif(NEW.`status` = 'queued', 1, -1) WHERE `id` = 1;
END;
--> statement-breakpoint
CREATE TRIGGER `executions_unqueued` AFTER DELETE ON `executions`
WHEN OLD.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` - 1 WHERE `id` = 1;
END;
--> statement-breakpoint
-- Ended executions by status, and how long each phase took.
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
    ('queue', max(0, NEW.`started_at` - NEW.`created_at`)),
    ('startup', json_extract(NEW.`timing`, '$.startup_ms')),
    ('dep_install', nullif(json_extract(NEW.`timing`, '$.dep_install_ms'), 0)),
    ('execution', json_extract(NEW.`timing`, '$.execution_ms')),
    ('total', json_extract(NEW.`timing`, '$.total_ms')))
  WHERE `column2` IS NOT NULL
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
  INSERT INTO `removals` (`prefix`, `due_at`)
  VALUES (NEW.`id` || '/' || OLD.`lease_id`, coalesce(NEW.`ended_at`, NEW.`available_at`) + 3600000)
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
