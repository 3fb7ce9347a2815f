"""Drivers: what works on a migration. All of them act through the same bridge."""
