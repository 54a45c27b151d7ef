CREATE TABLE `queue_length` (
	`id` integer PRIMARY KEY NOT NULL,
	`queued` integer NOT NULL
);
--> statement-breakpoint
INSERT INTO `queue_length` (`id`, `queued`)
SELECT 1, count(*) FROM `executions` WHERE `status` = 'queued';
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
