"""What the tests of a project need."""
