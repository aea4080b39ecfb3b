"""One file a command; each is imported when its command is called."""
