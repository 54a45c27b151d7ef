CREATE TABLE `counts` (
	`name` text NOT NULL,
	`job_type` text NOT NULL,
	`label` text NOT NULL,
	`n` integer NOT NULL,
	PRIMARY KEY(`name`, `job_type`, `label`)
);
--> statement-breakpoint
CREATE TABLE `durations` (
	`job_type` text NOT NULL,
	`phase` text NOT NULL,
	`le_ms` integer NOT NULL,
	`n` integer NOT NULL,
	`sum_ms` integer NOT NULL,
	PRIMARY KEY(`job_type`, `phase`, `le_ms`)
);
--> statement-breakpoint
CREATE TABLE `removals` (
	`prefix` text PRIMARY KEY NOT NULL,
	`due_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `removals_due` ON `removals` (`due_at`);--> statement-breakpoint
-- What ended, and how long it took, is counted by the statement that ends it.
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
-- A lease that ends without a result is lost: it expired, or its agent gave it back. Nobody will
-- ever see what it uploaded; an upload under way may last for an hour more.
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
INSERT INTO `counts` (`name`, `job_type`, `label`, `n`)
SELECT 'dead_letters', '', '', count(*) FROM `dead_letters`;
