ALTER TABLE `agents` ADD `protocol` text DEFAULT '1.0' NOT NULL;--> statement-breakpoint
ALTER TABLE `agents` ADD `gpus` text DEFAULT '{"total":0,"free":0}' NOT NULL;--> statement-breakpoint
ALTER TABLE `executions` ADD `turn` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `executions` ADD `place` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_place` ON `executions` (`job_type`,`place`,`seq`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
CREATE INDEX `executions_turn` ON `executions` (`key_id`,`turn`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
ALTER TABLE `queue_length` ADD `reached` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
-- The same as before, and how far the queue has come.
DROP TRIGGER `executions_queue_moved`;
--> statement-breakpoint
CREATE TRIGGER `executions_queue_moved` AFTER UPDATE OF `status` ON `executions`
WHEN (OLD.`status` = 'queued') <> (NEW.`status` = 'queued')
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + iif(NEW.`status` = 'queued', 1, -1),
    `reached` = iif(NEW.`status` = 'running', max(`reached`, NEW.`place`), `reached`)
  WHERE `id` = 1;
END;
