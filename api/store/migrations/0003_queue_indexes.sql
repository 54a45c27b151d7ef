DROP INDEX `executions_status`;--> statement-breakpoint
CREATE INDEX `executions_status` ON `executions` (`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');