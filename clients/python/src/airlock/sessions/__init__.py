"""Sessions: interpreters that remember from call to call."""
