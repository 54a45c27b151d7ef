CREATE TABLE `output_chunks` (
	`execution_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`position` integer NOT NULL,
	`stdout_offset` integer NOT NULL,
	`stderr_offset` integer NOT NULL,
	`runs` text NOT NULL,
	`at` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`execution_id`, `attempt`, `position`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
ALTER TABLE `executions` ADD `watched_until` integer;--> statement-breakpoint
INSERT INTO `output_chunks` (`execution_id`, `attempt`, `position`, `stdout_offset`, `stderr_offset`, `runs`, `at`, `data`)
SELECT c.execution_id, e.attempt,
  c.offset + iif(c.stream = 'stderr', w.stdout_bytes, 0),
  iif(c.stream = 'stderr', w.stdout_bytes, c.offset),
  iif(c.stream = 'stderr', c.offset, 0),
  json_array(iif(c.stream = 'stderr', -length(c.data), length(c.data))),
  coalesce(e.ended_at, e.started_at), c.data
FROM log_chunks c
JOIN executions e ON e.id = c.execution_id AND e.lease_id = c.lease_id
JOIN (SELECT execution_id, lease_id, sum(iif(stream = 'stdout', length(data), 0)) AS stdout_bytes
  FROM log_chunks GROUP BY 1, 2) w ON w.execution_id = c.execution_id AND w.lease_id = c.lease_id;--> statement-breakpoint
DROP TABLE `log_chunks`;
