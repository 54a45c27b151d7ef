CREATE TABLE `minutes` (
	`at` integer PRIMARY KEY NOT NULL,
	`pending` integer NOT NULL,
	`running` integer NOT NULL,
	`slots` integer NOT NULL,
	`ended` text NOT NULL
);
