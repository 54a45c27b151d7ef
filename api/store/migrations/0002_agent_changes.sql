CREATE TABLE `agent_changes` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`agent_id` text NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `agent_changes_agent_id_unique` ON `agent_changes` (`agent_id`);
--> statement-breakpoint
INSERT INTO `agent_changes` (`agent_id`) SELECT `id` FROM `agents`;
--> statement-breakpoint
-- INSERT OR REPLACE would not replace here: an upsert of an agent lets it fail.
CREATE TRIGGER `agent_added` AFTER INSERT ON `agents`
BEGIN
  DELETE FROM `agent_changes` WHERE `agent_id` = NEW.`id`;
  INSERT INTO `agent_changes` (`agent_id`) VALUES (NEW.`id`);
END;
--> statement-breakpoint
CREATE TRIGGER `agent_changed` AFTER UPDATE ON `agents`
BEGIN
  DELETE FROM `agent_changes` WHERE `agent_id` = NEW.`id`;
  INSERT INTO `agent_changes` (`agent_id`) VALUES (NEW.`id`);
END;
--> statement-breakpoint
CREATE TRIGGER `agent_removed` AFTER DELETE ON `agents`
BEGIN
  DELETE FROM `agent_changes` WHERE `agent_id` IN (OLD.`id`, '');
  INSERT INTO `agent_changes` (`agent_id`) VALUES ('');
END;
