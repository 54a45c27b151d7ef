-- An early form of 0009 made it. Retention says itself when the bytes of what it removes fall due.
DROP TRIGGER IF EXISTS `executions_removed`;
