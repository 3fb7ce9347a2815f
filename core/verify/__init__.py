"""What turns runs and references into check results. Pure: reads the fold, touches nothing."""
