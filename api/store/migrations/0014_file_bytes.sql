CREATE TABLE `file_bytes` (
	`id` integer PRIMARY KEY NOT NULL,
	`total` integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE `removals` ADD `file_bytes` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
-- The bytes of uploaded files, which max_files_bytes bounds.
INSERT INTO `file_bytes` (`id`, `total`)
VALUES (1, (SELECT coalesce(sum(`size_bytes`), 0) FROM `files`));
--> statement-breakpoint
CREATE TRIGGER `files_stored` AFTER INSERT ON `files`
BEGIN
  UPDATE `file_bytes` SET `total` = `total` + NEW.`size_bytes` WHERE `id` = 1;
END;
--> statement-breakpoint
CREATE TRIGGER `files_removed` AFTER DELETE ON `files`
BEGIN
  UPDATE `file_bytes` SET `total` = `total` - OLD.`size_bytes` WHERE `id` = 1;
END;
--> statement-breakpoint
CREATE TRIGGER `removals_of_file` AFTER INSERT ON `removals`
WHEN NEW.`file_bytes` > 0
BEGIN
  UPDATE `file_bytes` SET `total` = `total` + NEW.`file_bytes` WHERE `id` = 1;
END;
--> statement-breakpoint
CREATE TRIGGER `removals_of_file_done` AFTER DELETE ON `removals`
WHEN OLD.`file_bytes` > 0
BEGIN
  UPDATE `file_bytes` SET `total` = `total` - OLD.`file_bytes` WHERE `id` = 1;
END;
