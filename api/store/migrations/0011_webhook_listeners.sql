-- An execution that ends is an event also while somebody listens (the setting `webhook_listening_until`,
-- epoch ms, see api/store/webhooks/listen.ts). An event for listeners alone is born fanned out, so that
-- the sender never sees it.
DROP TRIGGER `executions_webhook`;--> statement-breakpoint
CREATE TRIGGER `executions_webhook` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` IN ('queued', 'running') AND NEW.`status` NOT IN ('queued', 'running')
  AND (NEW.`callback_url` IS NOT NULL OR EXISTS (
    SELECT 1 FROM `settings`, json_each(`settings`.`value`) AS `type`
    WHERE `settings`.`name` = 'webhook_types' AND `type`.`value` = 'execution.' || NEW.`status`)
  OR EXISTS (
    SELECT 1 FROM `settings`
    WHERE `name` = 'webhook_listening_until' AND CAST(`value` AS INTEGER) > NEW.`ended_at`))
BEGIN
  INSERT INTO `webhook_events`
    (`execution_id`, `type`, `data`, `callback_url`, `created_at`, `is_fanned_out`)
  VALUES (NEW.`id`, 'execution.' || NEW.`status`,
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
      'parent_execution_id', NEW.`parent_execution_id`,
      'relationship', NEW.`relationship`,
      'traceparent', NEW.`traceparent`),
    NEW.`callback_url`, NEW.`ended_at`,
    NEW.`callback_url` IS NULL AND NOT EXISTS (
      SELECT 1 FROM `settings`, json_each(`settings`.`value`) AS `type`
      WHERE `settings`.`name` = 'webhook_types' AND `type`.`value` = 'execution.' || NEW.`status`));
END;
