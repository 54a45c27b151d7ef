ALTER TABLE `dead_letters` ADD `error_type` text DEFAULT '' NOT NULL;--> statement-breakpoint
CREATE INDEX `dead_letters_error_type` ON `dead_letters` (`error_type`,`id`);--> statement-breakpoint
CREATE INDEX `dead_letters_created_at` ON `dead_letters` (`created_at`);--> statement-breakpoint
CREATE INDEX `executions_job_type_status` ON `executions` (`job_type`,`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');--> statement-breakpoint
UPDATE `dead_letters` SET `error_type` = (
  SELECT coalesce(json_extract(`error`, '$.type'), '') FROM `executions`
  WHERE `executions`.`id` = `dead_letters`.`execution_id`);
--> statement-breakpoint
-- The same as before, with the error's type.
DROP TRIGGER `executions_dead_letter`;
--> statement-breakpoint
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `status` ON `executions`
WHEN NEW.`mode` = 'async'
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`execution_id`, `error_type`, `created_at`)
  VALUES (NEW.`id`, json_extract(NEW.`error`, '$.type'), NEW.`ended_at`);
END;
