-- Every asynchronous execution that ends failed, timeout or oom gets one dead letter in the same
-- statement that ends it, whichever path ends it.
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `status` ON `executions`
WHEN NEW.`mode` = 'async'
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`execution_id`, `created_at`) VALUES (NEW.`id`, NEW.`ended_at`);
END;
--> statement-breakpoint
-- A finished execution stays as it ended.
CREATE TRIGGER `executions_final` BEFORE UPDATE OF `status` ON `executions`
WHEN OLD.`status` NOT IN ('queued', 'running') AND NEW.`status` <> OLD.`status`
BEGIN
  SELECT RAISE(ABORT, 'a finished execution cannot change its status');
END;
