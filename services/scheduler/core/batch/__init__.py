"""The batch core (ST Server): jobs and their places in the queue, starts, and who ends when hosts must be given back."""
