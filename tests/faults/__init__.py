"""What goes wrong around the queue, and what must hold all the same."""
