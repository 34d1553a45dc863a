"""Faults injected into real workers, and the guarantees that must still hold."""
