CREATE TABLE `lanes` (
	`key_id` text NOT NULL,
	`job_type` text NOT NULL,
	`queued` integer NOT NULL,
	`running` integer NOT NULL,
	`served_at` integer NOT NULL,
	PRIMARY KEY(`key_id`, `job_type`)
);
--> statement-breakpoint
CREATE INDEX `lanes_waiting` ON `lanes` (`job_type`) WHERE "lanes"."queued" > 0;--> statement-breakpoint
ALTER TABLE `agents` ADD `protocol` text DEFAULT '1.0' NOT NULL;--> statement-breakpoint
ALTER TABLE `agents` ADD `gpus` text DEFAULT '{"total":0,"free":0}' NOT NULL;--> statement-breakpoint
ALTER TABLE `queue_length` ADD `leased` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_lane` ON `executions` (`key_id`,`job_type`,`seq`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
INSERT INTO `lanes` (`key_id`, `job_type`, `queued`, `running`, `served_at`)
SELECT coalesce(`key_id`, ''), `job_type`, sum(`queued`), sum(`running`), 0 FROM (
  SELECT `key_id`, `job_type`, 1 AS `queued`, 0 AS `running` FROM `executions` WHERE `status` = 'queued'
  UNION ALL
  SELECT `key_id`, `job_type`, 0, 1 FROM `executions` WHERE `status` = 'running')
GROUP BY 1, 2;
--> statement-breakpoint
-- The same as before, and the lane of the execution with it.
DROP TRIGGER `executions_queued`;
--> statement-breakpoint
CREATE TRIGGER `executions_queued` AFTER INSERT ON `executions`
WHEN NEW.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + 1 WHERE `id` = 1;
  INSERT INTO `lanes` (`key_id`, `job_type`, `queued`, `running`, `served_at`)
  VALUES (coalesce(NEW.`key_id`, ''), NEW.`job_type`, 1, 0, 0)
  ON CONFLICT DO UPDATE SET `queued` = `queued` + 1;
END;
--> statement-breakpoint
DROP TRIGGER `executions_queue_moved`;
--> statement-breakpoint
CREATE TRIGGER `executions_queue_moved` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` = 'queued' AND NEW.`status` <> 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` - 1, `leased` = `leased` + (NEW.`status` = 'running')
  WHERE `id` = 1;
  UPDATE `lanes` SET `queued` = `queued` - 1, `running` = `running` + (NEW.`status` = 'running'),
    `served_at` = iif(NEW.`status` = 'running', (SELECT `leased` FROM `queue_length`), `served_at`)
  WHERE `key_id` = coalesce(NEW.`key_id`, '') AND `job_type` = NEW.`job_type`;
END;
--> statement-breakpoint
CREATE TRIGGER `executions_lease_over` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` <> 'queued' AND OLD.`status` <> NEW.`status`
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + 1 WHERE `id` = 1 AND NEW.`status` = 'queued';
  UPDATE `lanes` SET `queued` = `queued` + (NEW.`status` = 'queued'),
    `running` = `running` + (NEW.`status` = 'running') - (OLD.`status` = 'running')
  WHERE `key_id` = coalesce(NEW.`key_id`, '') AND `job_type` = NEW.`job_type`;
END;
--> statement-breakpoint
DROP TRIGGER `executions_unqueued`;
--> statement-breakpoint
CREATE TRIGGER `executions_unqueued` AFTER DELETE ON `executions`
WHEN OLD.`status` IN ('queued', 'running')
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` - (OLD.`status` = 'queued') WHERE `id` = 1;
  UPDATE `lanes` SET `queued` = `queued` - (OLD.`status` = 'queued'),
    `running` = `running` - (OLD.`status` = 'running')
  WHERE `key_id` = coalesce(OLD.`key_id`, '') AND `job_type` = OLD.`job_type`;
END;
